/* The commands of nvidia-uvm, and their parameters (uvm_ioctl.h of NVIDIA's open-gpu-kernel-modules), restated. */
#ifndef MGPU_UVM_ABI_H
#define MGPU_UVM_ABI_H
#include <stdbool.h>
#include <stdint.h>

/* /dev/nvidia-uvm takes bare command numbers. */
enum uvm_cmd {
#define UVM(name, number, bytes, ...) name = number,
#include "../rm/interface.def"
};

/* What these do is said by the file, whoever calls (uvm_api_free(), uvm_api_unmap_external(), uvm_api_map_external_allocation(),
 * uvm_api_register_gpu_va_space() and uvm_api_unregister_channel() of nvidia-uvm). INITIALIZE where the file is initialised. */
static inline bool rm_uvm_ends_mappings(uint32_t cmd)
{
    return cmd == UVM_FREE || cmd == UVM_UNMAP_EXTERNAL;
}
/* Made by the arbiter, and all of their parameters are an outer struct. */
static inline bool rm_uvm_is_executed(uint32_t cmd)
{
    return cmd == UVM_REGISTER_GPU_VASPACE || rm_uvm_ends_mappings(cmd);
}
static inline bool rm_uvm_of_the_file(uint32_t cmd)
{
    return cmd == UVM_MAP_EXTERNAL_ALLOCATION || cmd == UVM_UNREGISTER_CHANNEL || cmd == UVM_INITIALIZE ||
           rm_uvm_is_executed(cmd);
}

/* Their parameters, which the argument points to (uvm_ioctl.h). Each ends in the RM status; MAP_EXTERNAL_ALLOCATION has an
 * array between its first and its last fields, of a length that depends on the driver's version. */
struct uvm_initialize {
    uint64_t flags;
    uint32_t status, pad;
};
enum { UVM_INIT_DISABLE_HMM = 1, UVM_INIT_MULTI_PROCESS = 2 };
struct uvm_range {
    uint64_t base, length; /* FREE has no length from 590.44 on */
};
struct uvm_pageable {
    uint8_t access, pad[3];
    uint32_t status;
};
struct uvm_unmap_external {
    struct uvm_range range;
    uint8_t gpu[16];
    uint32_t status, pad;
};
struct uvm_register_gpu_vaspace {
    uint8_t gpu[16];
    int32_t ctl_fd;
    uint32_t client, vaspace, status;
};
struct uvm_map_external_begin {
    struct uvm_range range;
    uint64_t offset;
};
struct uvm_map_external_gpu {
    uint8_t gpu[16];
    uint32_t attributes[5];
};
struct uvm_map_external_end {
    uint64_t gpus; /* of the array */
    int32_t ctl_fd;
    uint32_t client, memory, status;
};
enum { UVM_STATUS_FROM_END = 8, UVM_MAP_EXTERNAL_STATUS_FROM_END = 4 };
#endif
