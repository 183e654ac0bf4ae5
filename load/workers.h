/* Threads that make the load, beside one that waits for their end or for SIGTERM and SIGINT: a thread that
 * waits for a card which does not answer does not delay the report. */
#ifndef MGPU_LOAD_WORKERS_H
#define MGPU_LOAD_WORKERS_H
#include <stdbool.h>
#include <stddef.h>

/* Whether the workers are to end: read it often. */
bool workers_stop(void);
/* Runs `work` in a thread per element of the array. True when all have returned. False when some had not a
 * second after a signal: they go on using their elements, and the program is to end with _exit(). */
bool workers_run(void (*work)(void *), void *arguments, size_t argument_bytes, unsigned int count);
/* Before any thread is made. */
void signals_hold(void);
/* Until a signal, or for so long. */
void signals_wait(double milliseconds);
#endif
