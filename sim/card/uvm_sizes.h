/* How large the parameters of nvidia-uvm's commands are that the simulated card serves, and where their status lies, from uvm_ioctl.h
 * of NVIDIA's open-gpu-kernel-modules. Those that depend on the driver's version are in rm/interface.def. */
#ifndef MGPU_SIM_UVM_SIZES_H
#define MGPU_SIM_UVM_SIZES_H
#include "../../native_sched/boundary/uvm_abi.h"
#include "../../native_sched/rm/table.h"

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
        {UVM_CREATE_RANGE_GROUP, {16, 8}},
        {UVM_DESTROY_RANGE_GROUP, {16, 8}},
        {UVM_ENABLE_PEER_ACCESS, {36, 32}},
        {UVM_DISABLE_PEER_ACCESS, {36, 32}},
        {UVM_MAP_DYNAMIC_PARALLELISM_REGION, {40, 32}},
        {UVM_ALLOC_SEMAPHORE_POOL, {9248, 9240}},
        {UVM_VALIDATE_VA_RANGE, {24, 16}},
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
    case UVM_UNREGISTER_CHANNEL:
        return (struct uvm_size){(uint32_t)bytes, (uint32_t)bytes - 4};
    default:
        return (struct uvm_size){0, 0};
    }
}
#endif
