/* How large the parameters of nvidia-uvm's commands are that the simulated card serves, and where their
 * status lies, from uvm_ioctl.h of NVIDIA's open-gpu-kernel-modules. Those that depend on the driver's
 * version are in interface.def. */
#ifndef MGPU_SIM_UVM_SIZES_H
#define MGPU_SIM_UVM_SIZES_H
#include "../../native_sched/nvidia/rm/table.h"
#include "../../native_sched/nvidia/rm/uvm_abi.h"

enum { UVM_UUID_BYTES = 16 };
struct uvm_size {
    uint32_t bytes, status_at;
};

/* bytes 0: not served. */
static inline struct uvm_size uvm_size_of(const struct rm_table *table, uint32_t cmd)
{
    static const struct {
        uint32_t cmd;
        struct uvm_size size;
    } sizes[] = {
        {UVM_INITIALIZE, {16, 8}},
        {UVM_MM_INITIALIZE, {8, 4}},
        {UVM_REGISTER_GPU, {40, 36}},
        {UVM_UNREGISTER_GPU, {20, 16}},
        {UVM_REGISTER_GPU_VASPACE, {32, 28}},
        {UVM_UNREGISTER_GPU_VASPACE, {20, 16}},
        {UVM_REGISTER_CHANNEL, {56, 48}},
        {UVM_CREATE_EXTERNAL_RANGE, {24, 16}},
        {UVM_UNMAP_EXTERNAL, {40, 32}},
        {UVM_PAGEABLE_MEM_ACCESS, {8, 4}},
        {UVM_PAGEABLE_MEM_ACCESS_ON_GPU, {24, 20}},
        {UVM_CREATE_RANGE_GROUP, {16, 8}},
        {UVM_DESTROY_RANGE_GROUP, {16, 8}},
        {UVM_ENABLE_PEER_ACCESS, {36, 32}},
        {UVM_DISABLE_PEER_ACCESS, {36, 32}},
        {UVM_MAP_DYNAMIC_PARALLELISM_REGION, {40, 32}},
        {UVM_VALIDATE_VA_RANGE, {24, 16}},
        {UVM_MIGRATE, {80, 72}},
        {UVM_UNSET_PREFERRED_LOCATION, {24, 16}},
        {UVM_SET_ACCESSED_BY, {40, 32}},
        {UVM_UNSET_ACCESSED_BY, {40, 32}},
        {UVM_ENABLE_READ_DUPLICATION, {24, 16}},
        {UVM_DISABLE_READ_DUPLICATION, {24, 16}},
        {UVM_DISCARD, {32, 24}},
        {UVM_SET_RANGE_GROUP, {32, 24}},
        {UVM_PREVENT_MIGRATION_RANGE_GROUPS, {272, 264}},
        {UVM_ALLOW_MIGRATION_RANGE_GROUPS, {272, 264}},
        {UVM_MIGRATE_RANGE_GROUP, {32, 24}},
        {UVM_ENABLE_SYSTEM_WIDE_ATOMICS, {20, 16}},
        {UVM_DISABLE_SYSTEM_WIDE_ATOMICS, {20, 16}},
        {UVM_POPULATE_PAGEABLE, {24, 20}},
        {UVM_MAP_EXTERNAL_SPARSE, {40, 32}},
    };
    int bytes;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].cmd == cmd)
            return sizes[i].size;
    bytes = rm_uvm_params(table, cmd);
    switch (cmd) {
    case UVM_MAP_EXTERNAL_ALLOCATION:
        return (struct uvm_size){(uint32_t)bytes, (uint32_t)bytes - UVM_MAP_EXTERNAL_STATUS_FROM_END};
    case UVM_FREE: /* the base, and the length where there is one */
        return (struct uvm_size){(uint32_t)bytes, (uint32_t)bytes - UVM_STATUS_FROM_END};
    case UVM_ALLOC_SEMAPHORE_POOL: /* attributes of 256 GPUs from 550 on, of 32 before */
        return table->version < RM_VERSION(550, 0) ? (struct uvm_size){1184, 1176}
                                                   : (struct uvm_size){9248, 9240};
    case UVM_SET_PREFERRED_LOCATION: /* from 550.40 on with a node of the host's, which was padding before */
        return (struct uvm_size){40, table->version < RM_VERSION(550, 0) ? 32 : 36};
    case UVM_UNREGISTER_CHANNEL:
        return (struct uvm_size){(uint32_t)bytes, (uint32_t)bytes - 4};
    default:
        return (struct uvm_size){0, 0};
    }
}
#endif
