/* Commands of nvidia-uvm. The command's number is in a register, so another thread cannot turn one command
 * into another. Most commands are about the caller's address space and run in the caller.
 *
 * A command's row in interface.def says what it may do. Commands that move managed memory to a card run: its
 * ranges are charged whole (managed.h). Commands that move other host memory there are refused, and so are
 * those that map nothing over any length, since that takes page tables for which nothing is charged.
 *
 * A mapping of an allocation keeps its memory (external.h). Commands that make or end mappings concern the
 * file alone: the arbiter makes them itself, from its own copy of the parameters, and believes only the
 * driver's answer. */
#include "uvm.h"
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include <errno.h>
#include <string.h>

enum { PROBE_BYTES = 4096 };

/* True if the file has a range for external mappings at the address. UVM looks for the range first, so
 * unmapping from a GPU that does not exist fails with another error where there is one. */
static bool has_range(const struct mediator *m, const struct open_file *file, uint64_t base)
{
    struct uvm_unmap_external unmap = {.range = {base, PROBE_BYTES}};
    int e = mediator_call(m, file, NULL, UVM_UNMAP_EXTERNAL, &unmap, sizeof(unmap));

    return e < 0 || unmap.status != NV_ERR_INVALID_ADDRESS;
}

/* The first mapping at or above the address; 0: none. */
static uint32_t first_from(struct tenant *t, const struct open_file *file, uint64_t base, uint64_t *found)
{
    WITH_TENANT(t);
    uint32_t slot = external_from(t->external, file->id, base);

    if (slot)
        *found = t->external->map[slot].base;
    return slot;
}

/* The range that began there has ended; only the caller has said how long it was. */
static void range_freed(const struct mediator *m, struct tenant *t, const struct open_file *file,
                        uint64_t base)
{
    uint64_t at;
    uint32_t slot;

    assert_held(&t->calls);
    /* Slots do not change meanwhile: the tenant's calls are held. */
    while ((slot = first_from(t, file, base, &at)) && (at == base || !has_range(m, file, at))) {
        WITH_TENANT(t);
        external_drop(t->external, slot);
    }
}

static void ended(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t cmd,
                  const uint8_t *outer)
{
    const struct uvm_unmap_external *unmap = (const void *)outer;
    const uint64_t base = unmap->range.base; /* where FREE has it too */

    if (cmd == UVM_FREE) {
        range_freed(m, t, file, base);
        return;
    }
    WITH_TENANT(t);
    external_unmapped(t->external, file->id, base, base + unmap->range.length, unmap->gpu, 0);
}

struct answer uvm_end_external(struct call *c)
{
    int e;
    WITH_CALLS_OF(c->tenant);

    inflight_intend(c, INTENT_UVM, &c->file, c->cmd, 0, 0);
    if ((e = call_driver(c)) < 0)
        return failed(e);
    if (call_status(c) == NV_OK)
        ended(c->m, c->tenant, &c->file, c->cmd, c->outer);
    return answered(call_status(c));
}

int uvm_again(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t cmd,
              uint8_t *outer)
{
    const struct rm_row *row = rm_command_row(&m->rm, cmd);
    uint32_t bytes = row ? rm_bytes(&m->rm, row->bytes) : 0;
    uint32_t at = row ? rm_status_at(row, bytes) : (uint32_t)RM_NO_STATUS, status;
    int e = at == RM_NO_STATUS ? -ENOTTY : mediator_call(m, file, NULL, cmd, outer, bytes);

    assert_held(&t->calls);
    if (e < 0)
        return e;
    memcpy(&status, outer + at, sizeof(status));
    if (status == NV_ERR_INVALID_ADDRESS)
        status = NV_OK;
    memcpy(outer + at, &status, sizeof(status));
    if (status == NV_OK)
        ended(m, t, file, cmd, outer);
    return 0;
}
