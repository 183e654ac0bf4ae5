/* What the command line asks for. A mistake ends the program with one line and STATUS_USAGE. */
#ifndef MGPU_LOAD_OPTIONS_H
#define MGPU_LOAD_OPTIONS_H
#include <stdbool.h>
#include <stdint.h>

enum { DEVICES_MAX = 32, STREAMS_MAX = 64 };

struct options {
    double period_ms, kernel_us, seconds, hold_ms; /* seconds 0: no end of that kind */
    uint64_t kernels, requests, queue, streams, mib;
    int devices[DEVICES_MAX];
    unsigned int device_count;
    bool linked, json;
    const char *save, *against, *stamps;
};

struct mode {
    const char *name, *letters, *help; /* letters: of the options it knows */
    const char *needs;                 /* of those it must be told */
    int (*run)(const struct options *options);
};
extern const struct mode burst_mode, saturate_mode, alloc_mode;

/* argv[0] is the mode's name. */
struct options options_parse(const struct mode *mode, int argc, char **argv);
#endif
