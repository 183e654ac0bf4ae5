/* The commands about managed ranges. Memory here is where host and card both reach it, so nothing moves and
 * nothing that is wished for is kept; what is asked is judged as uvm_api_migrate() and uvm_policy.c of
 * NVIDIA's open-gpu-kernel-modules do. */
#include "uvm.h"
#include <string.h>
#include <unistd.h>

struct migrate {
    struct uvm_range range;
    uint8_t to[UVM_UUID_BYTES];
    uint32_t flags, pad;
    uint64_t semaphore;
    uint32_t payload;
    int32_t node;
};
enum { MIGRATE_ASYNC = 1, MIGRATE_NO_SPACE = 4, MIGRATE_TEST = MIGRATE_NO_SPACE | 2 };

struct of_processor {
    struct uvm_range range;
    uint8_t name[UVM_UUID_BYTES];
};

static bool is_host(const uint8_t uuid[UVM_UUID_BYTES])
{
    static const uint8_t host[UVM_UUID_BYTES] = {0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
                                                 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73};

    return !memcmp(uuid, host, sizeof host);
}

uint32_t uvm_range_policy(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_range *range = call->outer;

    return managed_covers(&uvm->managed, range->base, range->length) ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

uint32_t uvm_range_group(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_range *range = (const void *)((const uint64_t *)call->outer + 1);

    return managed_covers(&uvm->managed, range->base, range->length) ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

uint32_t uvm_processor_policy(struct rm_call *call, struct uvm *uvm)
{
    const struct of_processor *asked = call->outer;
    struct sim_card *card;

    if (uvm_range_policy(call, uvm))
        return NV_ERR_INVALID_ADDRESS;
    return is_host(asked->name) || uvm_card_of(call->rm, uvm, asked->name, &card) ? NV_OK
                                                                                  : NV_ERR_INVALID_DEVICE;
}

static uint32_t judge(struct rm_call *call, struct uvm *uvm, const struct migrate *asked)
{
    struct sim_card *card;
    const struct uvm_card *of = uvm_card_of(call->rm, uvm, asked->to, &card);

    if (asked->flags & ~(MIGRATE_ASYNC | MIGRATE_TEST) || asked->flags & MIGRATE_TEST)
        return NV_ERR_INVALID_ARGUMENT;
    if (asked->flags & MIGRATE_ASYNC ? !asked->semaphore && asked->payload : asked->semaphore)
        return NV_ERR_INVALID_ARGUMENT;
    if (asked->semaphore &&
        (asked->semaphore % sizeof asked->payload || !uvm_has_range(uvm, asked->semaphore)))
        return NV_ERR_INVALID_ADDRESS;
    if (!is_host(asked->to) && (!of || !of->space))
        return NV_ERR_INVALID_DEVICE;
    return !asked->range.length && asked->semaphore ? NV_OK : uvm_range_policy(call, uvm);
}

/* A semaphore pool is mapped by the host as managed memory is, so it lies in the file too. */
uint32_t uvm_migrate(struct rm_call *call, struct uvm *uvm)
{
    const struct migrate *asked = call->outer;
    uint32_t status = judge(call, uvm, asked);

    if (status || !asked->semaphore)
        return status;
    return pwrite(uvm->managed.fd, &asked->payload, sizeof asked->payload, (off_t)asked->semaphore) ==
                   sizeof asked->payload
               ? NV_OK
               : NV_ERR_NO_MEMORY;
}
