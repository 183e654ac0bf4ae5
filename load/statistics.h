#ifndef MGPU_LOAD_STATISTICS_H
#define MGPU_LOAD_STATISTICS_H
#include <stddef.h>

/* Of measured values, in their unit; all NAN of none. A percentile is the smallest value that so many per
 * cent of the values do not exceed. */
struct statistics {
    double mean, p50, p90, p99, max;
};
/* Sorts the values. */
struct statistics statistics_of(double *values, size_t count);
#endif
