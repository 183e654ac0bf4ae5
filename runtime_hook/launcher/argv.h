#ifndef MGPU_ARGV_H
#define MGPU_ARGV_H
#include <stdbool.h>

/* What a runtime's command line says before its verb, read as runc and crun read it. */
struct invocation {
    int verb;        /* index into argv; argc if there is none, as in `runc --version` */
    const char *log; /* value of the last --log, or NULL */
};

struct invocation argv_read(int argc, char *const *argv);

/* Whether the verb makes a container, so that its spec has to be looked at. */
bool argv_creates(int argc, char *const *argv, const struct invocation *call);
#endif
