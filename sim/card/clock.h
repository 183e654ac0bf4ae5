/* The clock of everything that the cards do: CLOCK_MONOTONIC, in ns. */
#ifndef MGPU_SIM_CLOCK_H
#define MGPU_SIM_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#endif
