/* A load whose every kernel's length is known, to see what sharing a card does to it. */
#include "cuda.h"
#include "options.h"
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static const struct mode *const modes[] = {&burst_mode, &saturate_mode, &alloc_mode};
enum { MODES = sizeof modes / sizeof *modes };

static const char help[] =
    "usage: mgpu-load MODE OPTIONS...\n"
    "\n"
    "  burst     short requests at fixed times, as an online service gets them: how long each took\n"
    "  saturate  kernels without pause, as training has them: what share of the time they ran\n"
    "  alloc     device memory: whether it is to be had\n"
    "\n"
    "mgpu-load MODE --help says more. SIGTERM and SIGINT end a load early, with its report.\n";

int main(int argc, char **argv)
{
    struct options options;

    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help, stdout);
        return 0;
    }
    for (int i = 0; argc > 1 && i < MODES; i++) {
        if (strcmp(argv[1], modes[i]->name))
            continue;
        options = options_parse(modes[i], argc - 1, argv + 1);
        prctl(PR_SET_TIMERSLACK, 1UL); /* the default of 50 us is as long as a short kernel */
        return modes[i]->run(&options);
    }
    if (argc > 1)
        fprintf(stderr, "mgpu-load: no mode \"%s\": burst, saturate or alloc (mgpu-load --help)\n", argv[1]);
    else
        fprintf(stderr, "mgpu-load: which mode: burst, saturate or alloc? (mgpu-load --help)\n");
    return STATUS_USAGE;
}
