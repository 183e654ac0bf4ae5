/* Counts calls and how long the longest took, and tells both: "calls N longest_us M" for each line on stdin.
 */
#ifndef MGPU_TESTS_LONGEST_H
#define MGPU_TESTS_LONGEST_H
#include "../../base/clock.h"
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

static atomic_uint_least64_t calls, longest_us;

static void called(uint64_t since_us)
{
    uint64_t took_us = monotonic_ns() / 1000 - since_us, longest = atomic_load(&longest_us);

    while (took_us > longest && !atomic_compare_exchange_weak(&longest_us, &longest, took_us))
        ;
    atomic_fetch_add(&calls, 1);
}

/* Prints "up"; returns at the end of stdin. */
static void report(void)
{
    char line[16];

    printf("up\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        printf("calls %llu longest_us %llu\n", (unsigned long long)atomic_exchange(&calls, 0),
               (unsigned long long)atomic_exchange(&longest_us, 0));
        fflush(stdout);
    }
}
#endif
