#include "state.h"
#include <unistd.h>

/* All cards: they are added, one thread at a time, and none is removed. */
static _Atomic(struct gpu *) newest;

void gpu_add(struct gpu *gpu)
{
    gpu->next = newest;
    newest = gpu;
}

void gpu_kick_others(const struct gpu *gpu)
{
    static const uint64_t one = 1;

    for (const struct gpu *other = newest; other; other = other->next)
        if (other != gpu && other->blocked_count)
            (void)!write(other->kick_fd, &one, sizeof one);
}
