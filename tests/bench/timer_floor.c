/* How late this machine wakes a SCHED_FIFO thread that sleeps: what no scheduler in user space can do better.
 * Usage: timer_floor PERIOD_US COUNT. Prints the lateness of each wake-up in ns, a line each. */
#define _GNU_SOURCE
#include "../../base/clock.h"
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

int main(int argc, char **argv)
{
    struct sched_param priority = {.sched_priority = 20};
    int64_t period_ns = argc > 1 ? atoi(argv[1]) * 1000LL : 300000;
    int count = argc > 2 ? atoi(argv[2]) : 10000;
    int64_t *late_ns = calloc((size_t)count, sizeof(*late_ns));

    if (!late_ns)
        return 1;
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (sched_setscheduler(0, SCHED_FIFO, &priority))
        perror("timer_floor: SCHED_FIFO");
    for (int i = 0; i < count; i++) {
        int64_t at_ns = (int64_t)monotonic_ns() + period_ns;
        struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        late_ns[i] = (int64_t)monotonic_ns() - at_ns;
    }
    for (int i = 0; i < count; i++)
        printf("%lld\n", (long long)late_ns[i]);
    free(late_ns);
    return 0;
}
