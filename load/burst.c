#include "clock.h"
#include "options.h"
#include "report.h"
#include "solo.h"
#include "statistics.h"
#include "workers.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All in ns of CLOCK_MONOTONIC. */
struct request {
    int64_t due, submitted, first_start, done; /* first_start: 0 = the driver cannot say */
};

struct burst {
    const struct options *options;
    struct request *requests;
    size_t count, room; /* count: atomic */
};

struct engine {
    cuda_handle context, function, stream, start, end;
    struct card_clock clock;
};

static void engine_open(struct engine *engine, int device)
{
    engine->context = cuda_context(device);
    engine->function = spin_load();
    cuda_must(cuda.stream_create(&engine->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    cuda_must(cuda.event_create(&engine->start, 0), "cuEventCreate");
    cuda_must(cuda.event_create(&engine->end, 0), "cuEventCreate");
    /* The first launch loads the kernel, which no request is to wait for. */
    cuda_must(spin_launch(engine->function, 1, engine->stream), "cuLaunchKernel");
    cuda_must(card_clock_start(&engine->clock, engine->stream), "cuEventRecord");
}

static void serve(struct engine *engine, const struct options *options, struct request *request)
{
    uint64_t ns = (uint64_t)llround(options->kernel_us * NS_PER_US);

    request->submitted = now_ns();
    cuda_must(cuda.event_record(engine->start, engine->stream), "cuEventRecord");
    for (uint64_t i = 0; i < options->kernels; i++)
        cuda_must(spin_launch(engine->function, ns, engine->stream), "cuLaunchKernel");
    cuda_must(cuda.event_record(engine->end, engine->stream), "cuEventRecord");
    cuda_must(cuda.event_synchronize(engine->end), "cuEventSynchronize");
    request->done = now_ns();
    card_clock_saw(&engine->clock, &engine->end, request->done);
    request->first_start = card_clock_ns(&engine->clock, engine->start);
}

static struct request *next_request(struct burst *burst)
{
    enum { FIRST_ROOM = 4096 };

    if (burst->count == burst->room) {
        burst->room = burst->room ? burst->room * 2 : FIRST_ROOM;
        burst->requests = realloc(burst->requests, burst->room * sizeof *burst->requests);
        if (!burst->requests)
            abort();
    }
    return &burst->requests[burst->count];
}

static void burst_work(void *argument)
{
    struct burst *burst = argument;
    const struct options *options = burst->options;
    struct engine engine = {0};
    int64_t period_ns = llround(options->period_ms * NS_PER_MS), start_ns, due_ns;

    engine_open(&engine, options->devices[0]);
    start_ns = now_ns();
    due_ns = start_ns;
    while (!workers_stop() && (!options->requests || burst->count < options->requests) &&
           (options->seconds <= 0 || (double)(due_ns - start_ns) < options->seconds * NS_PER_S)) {
        struct request *request = next_request(burst);

        sleep_until_ns(due_ns);
        request->due = due_ns;
        serve(&engine, options, request);
        __atomic_store_n(&burst->count, burst->count + 1, __ATOMIC_RELEASE);
        due_ns = period_ns ? due_ns + period_ns : now_ns();
    }
    cuda_must(cuda.context_destroy(engine.context), "cuCtxDestroy");
}

static double latency_us(const struct request *request)
{
    return (double)(request->done - request->submitted) / NS_PER_US;
}

/* From when the request was to be made: one that is late because of the one before it shows here. */
static double response_us(const struct request *request)
{
    return (double)(request->done - request->due) / NS_PER_US;
}

static double start_us(const struct request *request)
{
    return request->first_start ? (double)(request->first_start - request->submitted) / NS_PER_US : NAN;
}

/* Of the requests of which it is known. */
static struct statistics measure(const struct burst *burst, size_t count,
                                 double (*measured_us)(const struct request *request))
{
    double *us = malloc((count + 1) * sizeof *us);
    struct statistics result;
    size_t known = 0;

    if (!us)
        abort();
    for (size_t i = 0; i < count; i++) {
        us[known] = measured_us(&burst->requests[i]);
        known += isfinite(us[known]) != 0;
    }
    result = statistics_of(us, known);
    free(us);
    return result;
}

static void report_statistics(struct report *report, const char *name, const struct statistics *us)
{
    report_open(report, name);
    report_real(report, "mean", us->mean);
    report_real(report, "p50", us->p50);
    report_real(report, "p90", us->p90);
    report_real(report, "p99", us->p99);
    report_real(report, "max", us->max);
    report_close(report);
}

static void report_slowdown(struct report *report, const struct statistics *us,
                            const struct statistics *solo_us)
{
    report_open(report, "slowdown");
    report_real(report, "mean", us->mean / solo_us->mean);
    report_real(report, "p50", us->p50 / solo_us->p50);
    report_real(report, "p99", us->p99 / solo_us->p99);
    report_close(report);
}

static void report_burst(const struct burst *burst, size_t count, const struct statistics *solo_us)
{
    const struct options *options = burst->options;
    struct statistics latency = measure(burst, count, latency_us);
    struct statistics response = measure(burst, count, response_us);
    struct statistics start = measure(burst, count, start_us);
    struct report report;

    if (options->save && count)
        solo_save(options, &latency);
    report_begin(&report, options->json);
    report_text(&report, "mode", "burst");
    report_whole(&report, "requests", count);
    report_real(&report, "period_ms", options->period_ms);
    report_whole(&report, "kernels", options->kernels);
    report_real(&report, "kernel_us", options->kernel_us);
    report_statistics(&report, "latency_us", &latency);
    report_statistics(&report, "response_us", &response);
    report_statistics(&report, "start_us", &start);
    if (options->against)
        report_slowdown(&report, &latency, solo_us);
    report_end(&report);
}

static FILE *open_stamps(const char *path)
{
    FILE *file = path ? fopen(path, "we") : NULL;

    if (path && !file) {
        fprintf(stderr, "mgpu-load burst: %s: %s\n", path, strerror(errno));
        exit(STATUS_FAILED);
    }
    return file;
}

static void write_stamps(FILE *file, const struct burst *burst, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct request *request = &burst->requests[i];

        fprintf(file, "%lld %lld %lld\n", (long long)request->submitted, (long long)request->first_start,
                (long long)request->done);
    }
    fclose(file);
}

static int burst_run(const struct options *options)
{
    struct burst burst = {.options = options};
    struct statistics solo_us = {0};
    FILE *stamps;
    size_t count;
    bool ended;

    if (options->against)
        solo_us = solo_read(options);
    stamps = open_stamps(options->stamps);
    signals_hold();
    cuda_load();
    ended = workers_run(burst_work, &burst, sizeof burst, 1);
    count = __atomic_load_n(&burst.count, __ATOMIC_ACQUIRE);
    report_burst(&burst, count, &solo_us);
    if (stamps)
        write_stamps(stamps, &burst, count);
    if (!ended)
        _exit(0);
    free(burst.requests);
    return 0;
}

const struct mode burst_mode = {
    .name = "burst",
    .letters = "pkunsdSATo",
    .needs = "pku",
    .run = burst_run,
    .help =
        "usage: mgpu-load burst --period-ms P --kernels K --kernel-us U [OPTIONS]\n"
        "\n"
        "Every P ms submits K kernels of U microseconds each and waits for their end. A request that is late delays\n"
        "those behind it, not their times: latency counts from the submission, response from the time it was due.\n"
        "P = 0: one request after the other, without pause.\n"
        "\n"
        "  --requests N    end after so many           --seconds S    end after so long; neither: at SIGTERM\n"
        "  --device D      the GPU's number (0)        -o json        a JSON object, not lines\n"
        "  --save FILE     keep the latencies of this run, alone on the GPU\n"
        "  --against FILE  compare with a run that was kept: slowdown\n"
        "  --stamps FILE   a line per request: submitted, first kernel started (0: unknown) and done, in ns\n",
};
