/* MAP_MEMORY_DMA: memory put into an address space of the device's by way of a virtual memory object, without
 * nvidia-uvm. RM makes page tables for it, of the card's memory and in no account, for the length that the
 * caller names and before it looks at the mapping; that ends, with its tables, when the memory or the virtual
 * memory is freed (RsInterMapping of NVIDIA's open-gpu-kernel-modules; virtmemMapTo_IMPL() in virtual_mem.c).
 * What was reserved for a call that fails stays in a pool, once: so a call maps at most what is charged
 * for memory of a card's, and 8 GiB at the most.
 *
 * So a mapping is an object of the account, below the memory. It is charged what tables of the smallest pages
 * take, as if no other mapping had entries in them, and keeps that until all of it is unmapped by one call.
 */
#include "create.h"
#include "handlers.h"
#include "native_sched/nvidia/account/page_tables.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/call/parked.h"
#include "native_sched/nvidia/boundary/objects/pages.h"
#include <errno.h>
#include <string.h>

/* RM maps a page of a compute object, by which the channel's work starts more work; it is no memory. No
 * other object has one (kgrobjGetMemInterMapParams_IMPL() in kernel_graphics_object.c). Vulkan maps it. */
static bool is_of_a_channel(const struct objects *o, uint32_t slot)
{
    return rm_kind_of(o->slot[o->slot[slot].parent].class_id) == RM_KIND_CHANNEL;
}

static bool too_long(const struct objects *o, uint32_t memory, uint64_t length)
{
    static const uint64_t most = 8ull << 30, page = 4096;
    uint64_t bytes = is_of_a_channel(o, memory) ? page : o->slot[memory].memory_bytes;

    return length > most || (bytes && length > bytes);
}

/* A slot for the mapping, which hangs from what it ends with; its charge is set aside. NV_OK or another RM
 * status. */
static uint32_t reserve(struct call *c, const struct rm_map_dma *a, uint64_t bytes, uint32_t *slot)
{
    struct tenant *t = c->tenant;
    struct objects *o = &t->objects;
    uint32_t virtual_memory, memory, handle = 0;
    int64_t made;
    WITH_TENANT(t);

    virtual_memory = call_find(c, a->client, a->virtual_memory);
    memory = call_find(c, a->client, a->memory);
    if (!virtual_memory || !memory || !call_find(c, a->client, a->device))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (rm_kind_of(o->slot[virtual_memory].class_id) != RM_KIND_VIRTUAL_MEMORY ||
        !(may_be_mapped(o->slot[memory].class_id) || is_of_a_channel(o, memory)))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (too_long(o, memory, a->length))
        return NV_ERR_INVALID_ARGUMENT;
    parked_note_lent(c, &t->ledger[o->slot[virtual_memory].card], bytes);
    if (ledger_reserve(&t->ledger[o->slot[virtual_memory].card], bytes) < 0)
        return NV_ERR_NO_MEMORY;
    choose_handle(t, a->client, &handle);
    made = objects_add(o, memory, a->client, handle, OBJECT_DMA_MAPPING);
    if (made < 0) {
        ledger_commit(&t->ledger[o->slot[virtual_memory].card], bytes, 0);
        return NV_ERR_NO_MEMORY;
    }
    *slot = (uint32_t)made;
    o->slot[made].card = o->slot[virtual_memory].card;
    o->slot[made].virtual_memory = a->virtual_memory;
    o->slot[made].device = a->device;
    o->slot[made].mapped = a->length;
    ledger_commit(&t->ledger[o->slot[made].card], bytes, bytes);
    o->slot[made].bytes = o->slot[made].memory_bytes = bytes;
    objects_commit(o, *slot);
    return NV_OK;
}

/* A mgpud that ends in here leaves the charge of what may not be mapped, which ends with the memory. */
struct answer mediate_map_dma(struct call *c)
{
    const struct rm_map_dma *a = (const void *)c->outer;
    uint64_t bytes = page_tables_most(a->length);
    uint8_t *end = c->outer + c->outer_bytes - sizeof(struct rm_unmap_dma_end); /* begins with the status */
    uint32_t status, slot, card;
    int e = 1;
    WITH_CALLS_OF(c->tenant);

    if ((e = pages_adopt(c, &c->file, a->client, a->memory)) < 0) {
        status = rm_refused(e);
        if (status)
            memcpy(end, &status, sizeof(status));
        return answer_of(e);
    }
    e = 1;
    do
        status = reserve(c, a, bytes, &slot);
    while (status == NV_ERR_NO_MEMORY && (e = close_wait(c)) > 0);
    if (e < 0)
        return failed(e);
    if (status) {
        memcpy(end, &status, sizeof(status));
        return answered(status);
    }
    card = c->tenant->objects.slot[slot].card;
    e = call_driver(c);
    memcpy(&status, end, sizeof(status));
    if (e < 0 || status) {
        WITH_TENANT(c->tenant);
        object_drop(c->tenant, slot);
    } else {
        WITH_TENANT(c->tenant);
        memcpy(&c->tenant->objects.slot[slot].base, end - sizeof(uint64_t), sizeof(uint64_t));
    }
    if (e == 0 && status == NV_ERR_NO_MEMORY)
        return parked_or(c, card, bytes, status);
    return driver_answer(e, status);
}

/* Ends the part of the mapping that was unmapped: all of it if the call gives no length. RM splits a mapping
 * when a part is unmapped (virtmemUnmapFrom_IMPL() in virtual_mem.c), so no later call finds it. */
static void end_mapping(struct tenant *t, uint32_t slot, uint64_t base, uint64_t part)
{
    struct rm_object *m = &t->objects.slot[slot];
    uint64_t end = base + (part ? part : m->mapped);

    if (part ? m->base >= end || base >= m->base + m->mapped : m->base != base)
        return;
    if (base <= m->base && end >= m->base + m->mapped)
        object_drop(t, slot);
    else
        m->base = UINT64_MAX;
}

/* RM leaves out what another device or subdevice was named for, and succeeds in unmapping nothing
 * (serverInterUnmapInternal() in rs_server.c). */
static void end_mappings(struct tenant *t, const struct rm_unmap_dma *a, uint64_t part)
{
    const struct objects *o = &t->objects;
    uint32_t i = objects_next(o, 0, 0), next;

    for (; i; i = next) {
        next = objects_next(o, 0, i);
        if (o->slot[i].class_id == OBJECT_DMA_MAPPING && o->slot[i].client == a->client &&
            o->slot[i].virtual_memory == a->virtual_memory && o->slot[i].device == a->device &&
            o->slot[i].base != UINT64_MAX)
            end_mapping(t, i, a->base, part);
    }
}

static bool is_own(struct call *c, const struct rm_unmap_dma *a)
{
    WITH_TENANT(c->tenant);

    return call_find(c, a->client, a->virtual_memory) && call_find(c, a->client, a->device) &&
           (!a->memory || call_find(c, a->client, a->memory));
}

/* A mapping of which a part was unmapped stays charged until its memory is freed. */
struct answer mediate_unmap_dma(struct call *c)
{
    const struct rm_unmap_dma *a = (const void *)c->outer;
    uint8_t *end = c->outer + c->outer_bytes - sizeof(struct rm_unmap_dma_end); /* begins with the status */
    uint32_t status = NV_ERR_INVALID_OBJECT_HANDLE;
    uint64_t part = 0; /* bytes of it; 0: all, as of drivers that know no parts */
    int e;
    WITH_CALLS_OF(c->tenant);

    if (!is_own(c, a)) {
        memcpy(end, &status, sizeof(status));
        return answered(status);
    }
    e = call_driver(c);
    memcpy(&status, end, sizeof(status));
    memcpy(&part, a + 1, (size_t)(end - (const uint8_t *)(a + 1)));
    if (e == 0 && status == NV_OK) {
        WITH_TENANT(c->tenant);
        end_mappings(c->tenant, a, part);
    }
    return driver_answer(e, status);
}
