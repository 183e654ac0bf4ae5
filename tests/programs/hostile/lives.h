/* Processes that live one after the other, a few at a time. */
#ifndef MGPU_TESTS_LIVES_H
#define MGPU_TESTS_LIVES_H
#include "../rm.h"
#include <sys/wait.h>
#include <time.h>

/* However little of a second a busy machine gives it. */
enum { PROCESSES_MIN = 40 };

/* Each calls life() with its number, which does not return. Prints "done N" after N processes. */
static inline void lives(int seconds, uint64_t at_once, void (*life)(uint64_t number))
{
    time_t end = time(NULL) + seconds;
    uint64_t n = 0;

    while (n < PROCESSES_MIN || time(NULL) < end) {
        if (n >= at_once)
            wait(NULL);
        if (fork() == 0)
            life(n);
        n++;
    }
    while (wait(NULL) > 0)
        ;
    say("done %llu", (unsigned long long)n);
}
#endif
