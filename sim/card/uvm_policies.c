/* The commands about managed ranges. Memory here is where host and card both reach it, so nothing moves and
 * nothing that is wished for is kept; what is asked is judged as uvm_api_migrate() and uvm_policy.c of
 * NVIDIA's open-gpu-kernel-modules do. */
#include "../abi/uvm_managed_abi.h"
#include "uvm.h"
#include <string.h>
#include <unistd.h>

enum { MAX_GROUPS = 64 };

static bool is_host(const uint8_t uuid[UVM_UUID_BYTES])
{
    return !memcmp(uuid, uvm_host(), UVM_UUID_BYTES);
}

/* Groups of ranges move together, or not at all: nothing moves, and only their numbers are there. */
uint32_t uvm_create_group(struct rm_call *call, struct uvm *uvm)
{
    uint64_t *number = call->outer;

    if (uvm->last_group == MAX_GROUPS)
        return NV_ERR_NO_MEMORY;
    *number = ++uvm->last_group;
    uvm->groups |= UINT64_C(1) << (*number - 1);
    return NV_OK;
}

static bool has_group(const struct uvm *uvm, uint64_t number)
{
    return number && number <= MAX_GROUPS && uvm->groups >> (number - 1) & 1;
}

uint32_t uvm_destroy_group(struct rm_call *call, struct uvm *uvm)
{
    const uint64_t *number = call->outer;

    if (!has_group(uvm, *number))
        return NV_ERR_OBJECT_NOT_FOUND;
    uvm->groups &= ~(UINT64_C(1) << (*number - 1));
    return NV_OK;
}

/* 0 is no group: what is in it leaves its own. */
uint32_t uvm_range_group(struct rm_call *call, struct uvm *uvm)
{
    const uint64_t *number = call->outer;
    const struct uvm_range *range = (const void *)(number + 1);

    if (*number && !has_group(uvm, *number))
        return NV_ERR_OBJECT_NOT_FOUND;
    return managed_covers(&uvm->managed, range->base, range->length) ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

uint32_t uvm_processor_policy(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_migrate *asked = call->outer;
    struct sim_card *card;

    if (uvm_range_policy(call, uvm))
        return NV_ERR_INVALID_ADDRESS;
    return is_host(asked->to) || uvm_card_of(call->rm, uvm, asked->to, &card) ? NV_OK : NV_ERR_INVALID_DEVICE;
}

static uint32_t judge(struct rm_call *call, struct uvm *uvm, const struct uvm_migrate *asked)
{
    struct sim_card *card;
    const struct uvm_card *of = uvm_card_of(call->rm, uvm, asked->to, &card);

    if (asked->flags & ~(UVM_MIGRATE_ASYNC | UVM_MIGRATE_TEST) || asked->flags & UVM_MIGRATE_TEST)
        return NV_ERR_INVALID_ARGUMENT;
    if (asked->flags & UVM_MIGRATE_ASYNC ? !asked->semaphore && asked->payload : asked->semaphore)
        return NV_ERR_INVALID_ARGUMENT;
    if (asked->semaphore &&
        (asked->semaphore % sizeof asked->payload || !uvm_has_range(uvm, asked->semaphore)))
        return NV_ERR_INVALID_ADDRESS;
    if (!is_host(asked->to) && (!of || !of->vaspace))
        return NV_ERR_INVALID_DEVICE;
    return !asked->range.length && asked->semaphore ? NV_OK : uvm_range_policy(call, uvm);
}

/* A semaphore pool is mapped by the host as managed memory is, so it lies in the file too. */
uint32_t uvm_migrate(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_migrate *asked = call->outer;
    uint32_t status = judge(call, uvm, asked);

    if (status || !asked->semaphore)
        return status;
    return pwrite(uvm->managed.fd, &asked->payload, sizeof asked->payload, (off_t)asked->semaphore) ==
                   sizeof asked->payload
               ? NV_OK
               : NV_ERR_NO_MEMORY;
}
