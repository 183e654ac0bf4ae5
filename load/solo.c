#include "solo.h"
#include "cuda.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noreturn)) static void fail(const char *path, const char *why)
{
    fprintf(stderr, "mgpu-load burst: %s: %s\n", path, why);
    exit(STATUS_FAILED);
}

void solo_save(const struct options *options, const struct statistics *latency_us)
{
    FILE *file = fopen(options->save, "we");

    if (!file)
        fail(options->save, strerror(errno));
    fprintf(file,
            "mgpu-load-burst 1\nkernels %llu kernel_us %.17g\nmean_us %.17g p50_us %.17g p99_us %.17g\n",
            (unsigned long long)options->kernels, options->kernel_us, latency_us->mean, latency_us->p50,
            latency_us->p99);
    if (fclose(file))
        fail(options->save, strerror(errno));
}

struct statistics solo_read(const struct options *options)
{
    struct statistics latency_us = {0};
    unsigned long long kernels;
    double kernel_us;
    FILE *file = fopen(options->against, "re");
    int found;

    if (!file)
        fail(options->against, strerror(errno));
    found = fscanf(file, "mgpu-load-burst 1 kernels %llu kernel_us %lf mean_us %lf p50_us %lf p99_us %lf",
                   &kernels, &kernel_us, &latency_us.mean, &latency_us.p50, &latency_us.p99);
    fclose(file);
    if (found != 5 || !(latency_us.p50 > 0))
        fail(options->against, "not what mgpu-load burst --save writes");
    if (kernels != options->kernels || kernel_us != options->kernel_us)
        fail(options->against, "made with other --kernels or --kernel-us");
    return latency_us;
}
