/* The commands of nvidia-uvm and their parameters (uvm_ioctl.h of open-gpu-kernel-modules). */
#ifndef MGPU_UVM_ABI_H
#define MGPU_UVM_ABI_H
#include <stdint.h>

/* /dev/nvidia-uvm takes bare command numbers. */
enum uvm_cmd {
#define UVM(name, number, bytes, ...) name = number,
#include "interface.def"
};

/* Their parameters, which the argument points to (uvm_ioctl.h). Each ends in the RM status;
 * MAP_EXTERNAL_ALLOCATION has an array between its first and its last fields, of a length that depends on the
 * driver's version. */
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
struct uvm_register_channel {
    uint8_t gpu[16];
    int32_t ctl_fd;
    uint32_t client, channel, pad;
    struct uvm_range range;
    uint32_t status, pad2;
};
struct uvm_peers {
    uint8_t gpu[16], other[16];
    uint32_t status;
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
