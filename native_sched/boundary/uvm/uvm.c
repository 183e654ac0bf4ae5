/* Commands of nvidia-uvm. They are bare numbers, which the filter matches as a whole, so that nothing that a
 * thread changes in memory makes one of them another. Most are about the calling process's address space and
 * run in it.
 *
 * What each may do is its row's in rm/interface.def. What moves managed memory into a card's runs: its ranges
 * are charged whole (managed.h). Refused is what moves other memory of the host's there, and what maps
 * nothing over any length: page tables of the card's that no memory stands for.
 *
 * A mapping of an allocation keeps its memory (external.h). What makes mappings and what ends them is about
 * the file alone: the arbiter makes these calls, from its own copy of the parameters, and believes nothing
 * but the driver's answer. */
#include "uvm.h"
#include "native_sched/boundary/call/inflight.h"
#include "native_sched/account/external.h"
#include "native_sched/boundary/continued/continued.h"
#include "native_sched/boundary/managed/managed.h"
#include <errno.h>
#include <string.h>

enum { PROBE_BYTES = 4096 };

int uvm_outer_bytes(const struct mediator *m, uint32_t cmd)
{
    const struct rm_uvm_row *row = rm_uvm_command(&m->rm, cmd);

    if (!row)
        return -ENOTTY;
    return row->changes ? (int)rm_bytes(&m->rm, row->bytes) : 0;
}

bool uvm_passes(const struct mediator *m, uint32_t cmd)
{
    const struct rm_uvm_row *row = rm_uvm_command(&m->rm, cmd);

    return row && row->disposition == RM_PASSED;
}

/* Whether the file has a range for external mappings at that address. To unmap from a GPU that there is not
 * is an error of its own, which UVM comes to after it has looked for the range. */
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

static struct answer end_external(struct call *c)
{
    uint32_t status;
    int e;
    WITH_CALLS_OF(c->tenant);

    inflight_intend(c, INTENT_UVM, &c->file, c->cmd, 0, 0);
    if ((e = call_driver(c)) < 0)
        return failed(e);
    memcpy(&status, c->outer + c->outer_bytes - UVM_STATUS_FROM_END, sizeof(status));
    if (status == NV_OK)
        ended(c->m, c->tenant, &c->file, c->cmd, c->outer);
    return answered(status);
}

int uvm_again(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t cmd,
              uint8_t *outer)
{
    uint32_t bytes = (uint32_t)uvm_outer_bytes(m, cmd), status;
    int e = mediator_call(m, file, NULL, cmd, outer, bytes);

    assert_held(&t->calls);
    if (e < 0)
        return e;
    memcpy(&status, outer + bytes - UVM_STATUS_FROM_END, sizeof(status));
    if (status == NV_ERR_INVALID_ADDRESS)
        status = NV_OK;
    memcpy(outer + bytes - UVM_STATUS_FROM_END, &status, sizeof(status));
    if (status == NV_OK)
        ended(m, t, file, cmd, outer);
    return 0;
}

static struct answer made_by_caller(struct call *c)
{
    (void)c;
    return continued();
}

/* In the order of rm_uvm[], whose rows they are a column of. */
#define HANDLER(handler, ...)     handler
#define HANDLER_MEDIATED(handler) handler
#define HANDLER_PASSED            made_by_caller
#define HANDLER_REFUSED           NULL
static struct answer (*const handlers[])(struct call *c) = {
#define UVM(name, number, bytes, ...) HANDLER(HANDLER_##__VA_ARGS__, ),
#include "rm/interface.def"
};

static struct answer decide(struct call *c)
{
    const struct rm_uvm_row *row = rm_uvm_command(&c->m->rm, c->cmd);
    struct driver_call d = call_for_driver(c, &c->file);

    d.cmd = UVM_INITIALIZE;
    if (c->file.kind != NODE_UVM || !c->m->ops->must_continue || !c->m->ops->must_continue(&d))
        return failed(-ENOTTY);
    if (!row || !handlers[row - rm_uvm])
        return failed(-EPERM);
    return handlers[row - rm_uvm](c);
}

struct answer mediate_uvm(struct call *c)
{
    struct answer a = decide(c);

    return a.kind == CONTINUE && c->m->ops->as_caller ? continued_as_caller(c) : a;
}
