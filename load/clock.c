#include "clock.h"
#include <math.h>
#include <time.h>

enum {
    FIRST_ROUNDS = 32,
    ANCHOR_AGE_NS = NS_PER_S, /* a float of so many ms is exact to 0.1 us */
    DRIFT_PER_MILLION = 5,    /* how far two clocks may part, in a time without a quick sighting */
};

int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

void sleep_until_ns(int64_t when_ns)
{
    struct timespec when = {.tv_sec = when_ns / NS_PER_S, .tv_nsec = when_ns % NS_PER_S};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL))
        ;
}

static int between_ns(cuda_handle from, cuda_handle to, int64_t *ns)
{
    float milliseconds;
    int error = cuda.event_elapsed(&milliseconds, from, to);

    if (!error)
        *ns = llround((double)milliseconds * NS_PER_MS);
    return error;
}

int card_clock_saw(struct card_clock *clock, cuda_handle *event, int64_t seen_ns)
{
    int64_t since_ns, latest_ns;
    int error = between_ns(clock->anchor, *event, &since_ns);

    if (error)
        return error;
    clock->anchor_ns += (seen_ns - clock->seen_ns) * DRIFT_PER_MILLION / 1000000;
    clock->seen_ns = seen_ns;
    latest_ns = seen_ns - since_ns;
    if (clock->anchor_ns > latest_ns)
        clock->anchor_ns = latest_ns;
    if (since_ns > ANCHOR_AGE_NS) {
        cuda_handle spare = clock->anchor;

        clock->anchor = *event;
        clock->anchor_ns += since_ns;
        *event = spare;
    }
    return CUDA_SUCCESS;
}

static int saw_now(cuda_handle event, cuda_handle stream, int64_t *seen_ns)
{
    int error = cuda.event_record(event, stream);

    if (error)
        return error;
    do
        error = cuda.event_query(event);
    while (error == CUDA_ERROR_NOT_READY);
    *seen_ns = now_ns();
    return error;
}

int card_clock_start(struct card_clock *clock, cuda_handle stream)
{
    cuda_handle event;
    int64_t seen_ns;
    int error = cuda.event_create(&clock->anchor, 0);

    if (!error)
        error = cuda.event_create(&event, 0);
    if (!error)
        error = saw_now(clock->anchor, stream, &clock->anchor_ns);
    clock->seen_ns = clock->anchor_ns;
    for (int i = 0; i < FIRST_ROUNDS && !error; i++) {
        error = saw_now(event, stream, &seen_ns);
        if (!error)
            error = card_clock_saw(clock, &event, seen_ns);
    }
    return error;
}

int64_t card_clock_ns(const struct card_clock *clock, cuda_handle event)
{
    int64_t since_ns;

    return between_ns(clock->anchor, event, &since_ns) ? 0 : clock->anchor_ns + since_ns;
}
