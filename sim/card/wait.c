#include "wait.h"
#include "../../base/clock.h"
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

enum { NS_PER_S = 1000000000, POLL_MAX_NS = 200000, PRIORITY = 2, NICE_MAX = 19 };

static _Thread_local bool polls;

void wait_as(bool realtime, int nice)
{
    static _Thread_local int has = NICE_MAX + 1;
    struct sched_param priority = {.sched_priority = realtime ? PRIORITY : 0};

    if (!realtime && nice != has) {
        has = nice;
        setpriority(PRIO_PROCESS, 0, nice);
    }
    if (realtime == polls)
        return;
    polls = realtime;
    pthread_setschedparam(pthread_self(), realtime ? SCHED_FIFO : SCHED_OTHER, &priority);
}

void wait_until(uint64_t ns)
{
    const struct timespec at = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    if (polls && ns < monotonic_ns() + POLL_MAX_NS)
        while (monotonic_ns() < ns)
            ;
    else
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
            ;
}
