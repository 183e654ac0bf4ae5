/* CLOCK_MONOTONIC: now, and instants to wait for. */
#ifndef MGPU_CLOCK_H
#define MGPU_CLOCK_H
#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

static inline struct timespec monotonic_after_ms(uint32_t ms)
{
    return timespec_of(monotonic_ns() + (uint64_t)ms * 1000000);
}
#endif
