/* Parameters of nvidia-uvm's commands about managed ranges, from uvm_ioctl.h of NVIDIA's
 * open-gpu-kernel-modules: what both sides of the simulated card make of them. */
#ifndef MGPU_SIM_UVM_MANAGED_ABI_H
#define MGPU_SIM_UVM_MANAGED_ABI_H
#include "uvm_sizes.h"

/* Those of the policies are its beginning, with the processor or without. */
struct uvm_migrate {
    struct uvm_range range;
    uint8_t to[UVM_UUID_BYTES];
    uint32_t flags, pad;
    uint64_t semaphore;
    uint32_t payload;
    int32_t node;
    uint64_t user_base, user_length;
    uint32_t status, pad2;
};
enum {
    UVM_MIGRATE_ASYNC = 1,
    UVM_MIGRATE_NO_SPACE = 4,
    UVM_MIGRATE_TEST = UVM_MIGRATE_NO_SPACE | 2,
};
_Static_assert(sizeof(struct uvm_migrate) == 80, "UVM_MIGRATE_PARAMS");

/* The processor that is none of the cards. */
static inline const uint8_t *uvm_host(void)
{
    static const uint8_t uuid[UVM_UUID_BYTES] = {0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
                                                 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73};

    return uuid;
}
#endif
