#include "libcuda.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct symbol {
    const char *name;
    size_t at;
} symbols[] = {
    {"cuCheckpointProcessLock", offsetof(struct libcuda, lock)},
    {"cuCheckpointProcessCheckpoint", offsetof(struct libcuda, checkpoint)},
    {"cuCheckpointProcessRestore", offsetof(struct libcuda, restore)},
    {"cuCheckpointProcessUnlock", offsetof(struct libcuda, unlock)},
    {"cuCheckpointProcessGetState", offsetof(struct libcuda, state)},
    {"cuGetErrorName", offsetof(struct libcuda, error_name)},
    {"cuGetErrorString", offsetof(struct libcuda, error_text)},
};

const char *libcuda_open(const char *path, struct libcuda *libcuda)
{
    static char why[512];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return dlerror();
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(library, symbols[i].name);

        if (!found) {
            snprintf(why, sizeof why, "%s has no %s: CUDA's checkpointing needs NVIDIA driver 570 or newer",
                     path, symbols[i].name);
            return why;
        }
        memcpy((char *)libcuda + symbols[i].at, &found, sizeof found);
    }
    return NULL;
}
