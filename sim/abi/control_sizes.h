/* How large the parameters of a control are, by the driver's version. */
#ifndef MGPU_SIM_CONTROL_SIZES_H
#define MGPU_SIM_CONTROL_SIZES_H
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../native_sched/nvidia/rm/table.h"
#include <stddef.h>

enum { SIZE_GONE = ~0u };

/* What the version's headers have; SIZE_GONE: they have no such control. */
static inline uint32_t control_bytes(const struct rm_table *table, uint32_t cmd)
{
    static const struct {
        uint32_t cmd, since, bytes;
    } sizes[] = {
#define SIZE(name, major, minor, bytes) {name, RM_VERSION(major, minor), bytes},
#include "../card/facts/control_sizes.def"
#undef SIZE
    };
    int known = rm_control_params(table, cmd);
    uint32_t bytes = known >= 0 && known != RM_BYTES_CALLERS ? (uint32_t)known : SIZE_GONE;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].cmd == cmd && sizes[i].since <= table->version)
            bytes = sizes[i].bytes;
    return bytes;
}
#endif
