#ifndef MGPU_RUNTIME_H
#define MGPU_RUNTIME_H
#include "runtime_hook/common/report.h"
#include <limits.h>

/* Finds the runtime to exec: an absolute path as it is, a name along PATH. What leads back to this program,
 * the binary or a script that names it as its interpreter, is passed over in PATH and refused as a path: an
 * exec of ourselves would go on for ever. 0, or a negative errno with why filled. */
int runtime_find(const char *name, const char *conf_path, char found[PATH_MAX], struct error *why);
#endif
