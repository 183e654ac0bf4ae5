#include "managed.h"
#include "process_map.h"
#include <sys/stat.h>

enum { PAGE_MASK = 4095 };

static bool find(const struct managed *managed, uint64_t address, struct place *place)
{
    struct stat st;

    return managed->fd >= 0 && process_map_find(managed->tgid, address, place) && !fstat(managed->fd, &st) &&
           place->inode == st.st_ino && place->shared && place->start == place->offset;
}

bool managed_at(const struct managed *managed, uint64_t address, uint64_t most, struct sysmem **memory,
                uint64_t *offset, uint64_t *bytes)
{
    struct place place;
    uint64_t end;

    if (!find(managed, address, &place))
        return false;
    *bytes = place.end - address < most ? place.end - address : most;
    *offset = address & PAGE_MASK;
    end = (address + *bytes + PAGE_MASK) & ~(uint64_t)PAGE_MASK;
    *memory = sysmem_of_file(managed->fd, address - *offset, end - (address - *offset));
    return *memory;
}

bool managed_covers(const struct managed *managed, uint64_t base, uint64_t length)
{
    uint64_t end = base + length;
    struct place place;

    if (end <= base || (base | length) & PAGE_MASK)
        return false;
    while (base < end && find(managed, base, &place))
        base = place.end;
    return base >= end;
}
