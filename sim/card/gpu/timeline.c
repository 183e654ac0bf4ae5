#include "timeline.h"
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

int timeline_start(struct timeline *timeline)
{
    void *at = mmap(NULL, TIMELINE_ENTRIES * sizeof *timeline->ring, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return -errno;
    timeline->ring = at;
    return 0;
}

void timeline_add(struct timeline *timeline, const struct timeline_entry *entry)
{
    timeline->ring[timeline->next++ % TIMELINE_ENTRIES] = *entry;
}
