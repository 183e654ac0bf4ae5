#ifndef MGPU_RUNTIME_H
#define MGPU_RUNTIME_H
#include "runtime_hook/common/report.h"
#include <limits.h>

/* Finds the runtime to exec: an absolute path as it is, a name along PATH. A program that leads back to this
 * one (the binary, or a script with it as interpreter) is skipped in PATH and refused as a path, since it
 * would exec itself for ever. 0, or a negative errno with why filled. */
int runtime_find(const char *name, const char *conf_path, char found[PATH_MAX], struct error *why);
#endif
