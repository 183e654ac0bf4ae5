#ifndef MGPU_ARGV_H
#define MGPU_ARGV_H
#include <stdbool.h>

/* What a runtime's command line says before its verb, read as runc and crun read it. */
struct invocation {
    int verb;        /* index into argv; argc if there is none, as in `runc --version` */
    const char *log; /* value of the last --log, or NULL */
};

struct invocation argv_read(int argc, char *const *argv);

/* Whether the verb makes a container, so that its spec has to be looked at, or is checkpoint, which mgpud has
 * to be asked about. */
bool argv_is_ours(int argc, char *const *argv, const struct invocation *call);
/* The verb is checkpoint. call: one that is ours. */
bool argv_checkpoints(char *const *argv, const struct invocation *call);
#endif
