#ifndef MGPU_CONF_H
#define MGPU_CONF_H
#include "report.h"
#include <limits.h>

#define CONF_DEFAULT_PATH "/etc/mgpu/runtime.conf"

/* What mgpu-runtime is told by its file: the environment of an engine does not reach a runtime. Lines are
 * `key = "value"`, a subset of TOML, with # comments. A key that is absent is "" here, save runtime. */
struct conf {
    /* the runtime that does the work: a name to look up in PATH, or an absolute path */
    char runtime[PATH_MAX];
    char socket[PATH_MAX];
    char seccomp_socket[PATH_MAX]; /* for mgpud, which shares the file; a grant carries it */
    char hook[PATH_MAX];
    char python[PATH_MAX];
    char main[PATH_MAX];
};

/* 0, or a negative errno with why filled. An unknown or repeated key and a bad line are refused. */
int conf_read(const char *path, struct conf *conf, struct error *why);
#endif
