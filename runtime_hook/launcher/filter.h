#ifndef MGPU_FILTER_H
#define MGPU_FILTER_H
#include "runtime_hook/common/conf.h"

/* podman's precreate hook: a spec comes in on standard input and goes out on standard output, as mgpud has
 * made it. Returns the exit status, or -1 when Python is to do it, which finds the spec on standard input
 * again. words: the command line from its verb on; log as for report(). */
int filter(char *const *words, const struct conf *conf, const char *log);
#endif
