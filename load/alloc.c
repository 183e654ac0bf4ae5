#include "cuda.h"
#include "options.h"
#include "report.h"
#include "workers.h"
#include <stdio.h>

static void report_alloc(const struct options *options, int error)
{
    struct report report;

    report_begin(&report, options->json);
    report_text(&report, "mode", "alloc");
    report_whole(&report, "mib", options->mib);
    report_whole(&report, "code", (uint64_t)error);
    if (error) {
        report_text(&report, "error", cuda_name(error));
        report_text(&report, "text", cuda_text(error));
    }
    report_end(&report);
}

static int alloc_run(const struct options *options)
{
    enum { BYTES_PER_MIB = 1 << 20 };
    cuda_handle context;
    uint64_t pointer;
    int error;

    signals_hold();
    cuda_load();
    context = cuda_context(options->devices[0]);
    error = cuda.memory_alloc(&pointer, options->mib * BYTES_PER_MIB);
    report_alloc(options, error);
    if (error)
        return STATUS_REFUSED;
    signals_wait(options->hold_ms);
    cuda_must(cuda.memory_free(pointer), "cuMemFree");
    cuda_must(cuda.context_destroy(context), "cuCtxDestroy");
    return 0;
}

const struct mode alloc_mode = {
    .name = "alloc",
    .letters = "mHdo",
    .needs = "m",
    .run = alloc_run,
    .help =
        "usage: mgpu-load alloc --mib N [OPTIONS]\n"
        "\n"
        "Allocates N MiB of device memory. Refused, it says what the driver said, and ends with status 2.\n"
        "\n"
        "  --hold-ms M   keep it so long, or until SIGTERM (0)\n"
        "  --device D    the GPU's number (0)        -o json   a JSON object, not lines\n",
};
