/* A burst's latencies when it had the card for itself, kept in a file to compare other runs with. */
#ifndef MGPU_LOAD_SOLO_H
#define MGPU_LOAD_SOLO_H
#include "options.h"
#include "statistics.h"

/* Both end the program with one line when the file will not do. */
void solo_save(const struct options *options, const struct statistics *latency_us);
/* Refuses a run of other kernels: nothing is to be learnt from it. */
struct statistics solo_read(const struct options *options);
#endif
