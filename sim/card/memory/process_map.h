/* What a process has mapped, by /proc/PID/maps: the pages that a driver would look at in its memory. */
#ifndef MGPU_SIM_PROCESS_MAP_H
#define MGPU_SIM_PROCESS_MAP_H
#include <stdbool.h>
#include <stdint.h>

struct place {
    uint64_t start, end, offset, inode;
    bool shared, writable;
    bool anonymous; /* shared memory that has no name */
};

/* The mapping that the address lies in. */
bool process_map_find(int32_t tgid, uint64_t address, struct place *place);
#endif
