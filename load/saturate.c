#include "../base/mutex.h"
#include "clock.h"
#include "options.h"
#include "report.h"
#include "workers.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    RUN_AHEAD = 2 /* times the queue: how far a linked card may be before the others */,
    LOOK_NS = 20 * NS_PER_MS
};

/* What one card has done; what others read of it is atomic. */
struct card {
    struct saturation *run;
    unsigned int index;
    int device;
    uint64_t launched, done;
    int64_t began_ns, last_ns; /* of the first launch and the last kernel known done; 0: none yet */
};

struct saturation {
    const struct options *options;
    struct card *cards;
    pthread_mutex_t lock; /* of `advanced` */
    pthread_cond_t advanced;
};

struct engine {
    cuda_handle context, function, *streams, *events;
};

static void engine_open(struct engine *engine, int device, const struct options *options)
{
    engine->context = cuda_context(device);
    engine->function = spin_load();
    engine->streams = calloc(options->streams, sizeof *engine->streams);
    engine->events = calloc(options->queue, sizeof *engine->events);
    if (!engine->streams || !engine->events)
        abort();
    for (uint64_t i = 0; i < options->streams; i++)
        cuda_must(cuda.stream_create(&engine->streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (uint64_t i = 0; i < options->queue; i++)
        cuda_must(cuda.event_create(&engine->events[i], 0), "cuEventCreate");
}

static uint64_t done_of(const struct card *card)
{
    return __atomic_load_n(&card->done, __ATOMIC_ACQUIRE);
}

/* The first card leads, by so much at most; the others do a step when it has done it. */
static bool may_launch(const struct card *card)
{
    const struct saturation *run = card->run;

    if (!run->options->linked)
        return true;
    if (card->index)
        return done_of(&run->cards[0]) > card->launched;
    for (unsigned int i = 1; i < run->options->device_count; i++)
        if (card->launched >= done_of(&run->cards[i]) + RUN_AHEAD * run->options->queue)
            return false;
    return true;
}

static bool wants_more(const struct card *card)
{
    const struct options *options = card->run->options;

    return !workers_stop() && (!options->kernels || card->launched < options->kernels) &&
           (options->seconds <= 0 || (double)(now_ns() - card->began_ns) < options->seconds * NS_PER_S);
}

static void launch(const struct engine *engine, struct card *card)
{
    const struct options *options = card->run->options;
    cuda_handle stream = engine->streams[card->launched % options->streams];

    cuda_must(spin_launch(engine->function, (uint64_t)llround(options->kernel_us * NS_PER_US), stream),
              "cuLaunchKernel");
    cuda_must(cuda.event_record(engine->events[card->launched % options->queue], stream), "cuEventRecord");
    card->launched++;
}

static void advance(struct card *card)
{
    struct saturation *run = card->run;

    __atomic_store_n(&card->last_ns, now_ns(), __ATOMIC_RELAXED);
    if (!run->options->linked) {
        __atomic_store_n(&card->done, card->done + 1, __ATOMIC_RELEASE);
        return;
    }
    LOCKED(&run->lock);
    __atomic_store_n(&card->done, card->done + 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&run->advanced);
}

static void wait_for_others(const struct card *card)
{
    struct saturation *run = card->run;
    struct timespec until;

    LOCKED(&run->lock);
    while (!may_launch(card) && wants_more(card)) {
        int64_t until_ns;

        clock_gettime(CLOCK_REALTIME, &until);
        until_ns = until.tv_sec * (int64_t)NS_PER_S + until.tv_nsec + LOOK_NS;
        until = (struct timespec){.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
        pthread_cond_timedwait(&run->advanced, &run->lock, &until);
    }
}

static void card_work(void *argument)
{
    struct card *card = argument;
    uint64_t queue = card->run->options->queue;
    struct engine engine;

    engine_open(&engine, card->device, card->run->options);
    __atomic_store_n(&card->began_ns, now_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&card->last_ns, card->began_ns, __ATOMIC_RELAXED);
    for (;;) {
        while (card->launched - card->done < queue && wants_more(card) && may_launch(card))
            launch(&engine, card);
        if (card->launched > card->done) {
            cuda_must(cuda.event_synchronize(engine.events[card->done % queue]), "cuEventSynchronize");
            advance(card);
        } else if (wants_more(card)) {
            wait_for_others(card);
        } else {
            break;
        }
    }
    cuda_must(cuda.context_destroy(engine.context), "cuCtxDestroy");
    free(engine.streams);
    free(engine.events);
}

static double elapsed_s(const struct card *card, bool ended)
{
    int64_t began_ns = __atomic_load_n(&card->began_ns, __ATOMIC_RELAXED);
    int64_t last_ns = ended ? __atomic_load_n(&card->last_ns, __ATOMIC_RELAXED) : now_ns();

    return began_ns ? (double)(last_ns - began_ns) / NS_PER_S : 0;
}

static void report_saturation(const struct saturation *run, bool ended)
{
    const struct options *options = run->options;
    struct report report;

    report_begin(&report, options->json);
    report_text(&report, "mode", "saturate");
    report_real(&report, "kernel_us", options->kernel_us);
    report_whole(&report, "queue", options->queue);
    report_open_list(&report, "devices");
    for (unsigned int i = 0; i < options->device_count; i++) {
        const struct card *card = &run->cards[i];
        double seconds = elapsed_s(card, ended);

        report_open(&report, NULL);
        report_whole(&report, "device", (uint64_t)card->device);
        report_whole(&report, "kernels", done_of(card));
        report_real(&report, "seconds", seconds);
        report_real(&report, "busy", (double)done_of(card) * options->kernel_us / 1e6 / seconds);
        report_close(&report);
    }
    report_close_list(&report);
    report_end(&report);
}

static int saturate_run(const struct options *options)
{
    struct card cards[DEVICES_MAX] = {0};
    struct saturation run = {
        .options = options,
        .cards = cards,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .advanced = PTHREAD_COND_INITIALIZER,
    };
    bool ended;

    for (unsigned int i = 0; i < options->device_count; i++)
        cards[i] = (struct card){.run = &run, .index = i, .device = options->devices[i]};
    signals_hold();
    cuda_load();
    ended = workers_run(card_work, cards, sizeof *cards, options->device_count);
    report_saturation(&run, ended);
    if (!ended)
        _exit(0);
    return 0;
}

const struct mode saturate_mode = {
    .name = "saturate",
    .letters = "uqskdtlo",
    .needs = "u",
    .run = saturate_run,
    .help =
        "usage: mgpu-load saturate --kernel-us U [OPTIONS]\n"
        "\n"
        "Keeps kernels of U microseconds each queued until the end, and says how many were done and for what share\n"
        "of the time they ran.\n"
        "\n"
        "  --queue Q     so many queued at any time (4)   --streams S   in turns over so many streams (1)\n"
        "  --seconds S   end after so long                --kernels N   end after so many on each GPU;\n"
        "                                                               neither: at SIGTERM\n"
        "  --device D    the GPU's number (0), or several: 0,1\n"
        "  --linked      several GPUs do each step together: the others when the first has done it\n"
        "  -o json       a JSON object, not lines\n",
};
