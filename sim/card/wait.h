/* How a thread that serves a call waits out the card's time. */
#ifndef MGPU_SIM_WAIT_H
#define MGPU_SIM_WAIT_H
#include <stdbool.h>
#include <stdint.h>

/* A driver runs in its caller's thread, at its priority: so does this thread from now on, where it may. */
void wait_as(bool realtime, int nice);

/* Returns at an instant of CLOCK_MONOTONIC. The driver polls for the card's answer; that is done for
 * real-time callers and short waits, where a sleep would add the host's own wake-up. Others sleep: the host
 * has few CPUs. */
void wait_until(uint64_t ns);
#endif
