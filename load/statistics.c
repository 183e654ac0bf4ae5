#include "statistics.h"
#include <math.h>
#include <stdlib.h>

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double percentile(const double *values, size_t count, unsigned int percent)
{
    size_t rank = (count * percent + 99) / 100;

    return values[rank ? rank - 1 : 0];
}

struct statistics statistics_of(double *values, size_t count)
{
    struct statistics result = {NAN, NAN, NAN, NAN, NAN};
    double sum = 0;

    if (!count)
        return result;
    qsort(values, count, sizeof *values, ascending);
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    result.mean = sum / (double)count;
    result.p50 = percentile(values, count, 50);
    result.p90 = percentile(values, count, 90);
    result.p99 = percentile(values, count, 99);
    result.max = values[count - 1];
    return result;
}
