/* MAP_EXTERNAL_ALLOCATION of nvidia-uvm, made by the arbiter on the tenant's file and from its own copy of
 * the parameters: what is mapped is what is in the table (external.h), whatever another thread does to the
 * caller's memory meanwhile.
 *
 * UVM duplicates the memory into its own client and may do so in the name of the process that calls
 * (clientCopyResource() and cliresShareCallback() of NVIDIA's open-gpu-kernel-modules: by default only that
 * of the client itself, RS_SHARE_TYPE_PID). So for the length of the call the object is shared with all
 * clients, on its own client's file. Other tenants gain nothing from that: they cannot name it (dup.c). The
 * rule of the process is kept here. */
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/call/parked.h"
#include "native_sched/nvidia/boundary/objects/pages.h"
#include "native_sched/nvidia/boundary/objects/shared.h"
#include "uvm.h"
#include <errno.h>
#include <string.h>

enum {
    GPUS_MAX = ((16 << 10) - sizeof(struct uvm_map_external_begin) - sizeof(struct uvm_map_external_end)) /
               sizeof(struct uvm_map_external_gpu)
};

/* A mapping as its caller had it in memory. c->params is the whole struct, as long as the driver's version
 * has it. */
struct asked {
    const struct uvm_map_external_begin *begin;
    const struct uvm_map_external_gpu *gpu;
    struct uvm_map_external_end *end;
    uint32_t bytes;
};

/* Its records, one for each GPU. */
struct noted {
    uint32_t slot[GPUS_MAX], n;
    bool fresh[GPUS_MAX];
};

/* 0, a negative errno or rm_refusal(). What UVM does not look at is not read. */
static int read_map(struct call *c, struct asked *a)
{
    uint32_t most;
    int e;

    a->bytes = (uint32_t)rm_uvm_params(&c->m->rm, UVM_MAP_EXTERNAL_ALLOCATION);
    most = (a->bytes - sizeof(*a->begin) - sizeof(*a->end)) / sizeof(*a->gpu);
    a->begin = (const void *)c->params;
    a->gpu = (const void *)(c->params + sizeof(*a->begin));
    a->end = (void *)(c->params + a->bytes - sizeof(*a->end));
    e = caller_read_ends(c->caller, c->outer_at, c->params, sizeof(*a->begin) + sizeof(*a->gpu), a->bytes,
                         sizeof(*a->end));
    if (e < 0)
        return e;
    if (!a->end->gpus || a->end->gpus > most)
        return rm_refusal(NV_ERR_INVALID_ARGUMENT);
    if (a->begin->range.base + a->begin->range.length <= a->begin->range.base)
        return rm_refusal(NV_ERR_INVALID_ADDRESS);
    a->end->ctl_fd = -1;
    if (a->end->gpus > 1) /* the first is here already */
        e = caller_read(c->caller, c->outer_at + sizeof(*a->begin) + sizeof(*a->gpu),
                        c->params + sizeof(*a->begin) + sizeof(*a->gpu),
                        (a->end->gpus - 1) * sizeof(*a->gpu));
    /* The memory that was read may belong to another process by now. */
    return e < 0 ? e : caller_waits(c->caller) ? 0 : -EINTR;
}

/* The client's own file, through which its object is shared, and what is mapped: memory of a card's or of the
 * host's. NV_OK or another RM status. */
static uint32_t find(const struct call *c, const struct asked *a, struct open_file *client,
                     struct external_map *map)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t status = shared_client(c, a->end->client, client);
    uint32_t slot = objects_find(o, a->end->client, a->end->memory);
    const struct uvm_range *range = &a->begin->range;

    assert_held(&c->tenant->lock);
    if (status)
        return status;
    if (!slot || !may_be_mapped(o->slot[slot].class_id))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    *map = (struct external_map){
        .file = c->file.id,
        .base = range->base,
        .end = range->base + range->length,
        .card = o->slot[slot].card,
        .owner = o->slot[objects_find(o, a->end->client, a->end->client)].owner,
        .page_shift = page_shift_of(range->base, range->length, a->begin->offset, o->slot[slot].page_shift),
    };
    if (o->slot[slot].memory_bytes) {
        map->bytes = o->slot[slot].memory_bytes;
        map->memory = objects_memory(&c->tenant->objects, slot);
    }
    return NV_OK;
}

static void forget(struct tenant *t, const struct noted *noted)
{
    assert_held(&t->lock);
    for (uint32_t i = 0; i < noted->n; i++)
        if (noted->fresh[i])
            external_drop(t->external, noted->slot[i]);
}

/* Where a GPU of that name has its tables. One that is unknown by it is the memory's own, or the driver
 * refuses it. */
static uint32_t mapper(const struct call *c, const uint8_t *gpu, uint32_t card)
{
    const struct card *named = uvm_granted_card(c, gpu);

    return named ? named->index : card;
}

/* On all the GPUs, or on none. */
static uint32_t note(const struct call *c, const struct asked *a, struct external_map *map,
                     struct noted *noted)
{
    struct tenant *t = c->tenant;
    int64_t slot;

    assert_held(&t->lock);
    for (noted->n = 0; noted->n < a->end->gpus; noted->n++) {
        memcpy(map->gpu, a->gpu[noted->n].gpu, sizeof(map->gpu));
        map->mapper = mapper(c, map->gpu, map->card) + 1;
        if ((slot = external_add(t->external, map, &noted->fresh[noted->n])) < 0) {
            forget(t, noted);
            return NV_ERR_NO_MEMORY;
        }
        noted->fresh[noted->n] = !noted->fresh[noted->n];
        noted->slot[noted->n] = (uint32_t)slot;
    }
    return NV_OK;
}

/* The driver has put it in the place of what was mapped there. */
static void replace(struct tenant *t, const struct call *c, const struct asked *a, const struct noted *noted)
{
    const struct uvm_range *range = &a->begin->range;

    assert_held(&t->lock);
    for (uint32_t i = 0; i < a->end->gpus; i++)
        external_unmapped(t->external, c->file.id, range->base, range->base + range->length, a->gpu[i].gpu,
                          noted->slot[i]);
}

static struct answer make(struct call *c, const struct asked *a, const struct open_file *client_file)
{
    int e = shared_lend(c, client_file, a->end->client, a->end->memory);

    if (e < 0)
        return answer_of(e);
    e = call_driver_on(c, &c->file, c->cmd, c->params, a->bytes);
    shared_take_back(c->m, client_file, a->end->client, a->end->memory);
    return driver_answer(e, a->end->status);
}

/* Its records. 0, a negative errno or rm_refusal(). */
static int account_add(struct call *c, const struct asked *a, struct open_file *client_file,
                       struct noted *noted)
{
    struct external_map map = {0};
    uint32_t status;
    WITH_TENANT(c->tenant);

    /* A mapping is not kept by a file that is gone: nothing would end it. */
    if (!files_open(c->m->files, &c->file))
        return -EBADF;
    if (!(status = find(c, a, client_file, &map))) {
        parked_note_lent(c, &c->tenant->ledger[mapper(c, a->gpu[0].gpu, map.card)],
                         page_tables_most(a->begin->range.length));
        status = note(c, a, &map, noted);
    }
    return status ? rm_refusal(status) : 0;
}

static int adopt_pages(struct call *c, const struct asked *a)
{
    struct open_file client_file;
    uint32_t status;

    {
        WITH_TENANT(c->tenant);
        if ((status = shared_client(c, a->end->client, &client_file)))
            return rm_refusal(status);
    }
    return pages_adopt(c, &client_file, a->end->client, a->end->memory);
}

static struct answer account_and_make(struct call *c, const struct asked *a)
{
    struct tenant *t = c->tenant;
    struct open_file client_file;
    struct answer made;
    struct noted noted;
    uint32_t card;
    int e, waited = 1;
    WITH_CALLS_OF(t);

    if ((e = adopt_pages(c, a)) < 0)
        return answer_of(e);
    do
        e = account_add(c, a, &client_file, &noted);
    while (rm_refused(e) == NV_ERR_NO_MEMORY && (waited = close_wait(c)) > 0);
    if (e < 0)
        return answer_of(waited < 0 ? waited : e);
    /* A mgpud that ends in here leaves records of what may not be, which end with the object or the file;
     * the call is made anew, and twice is the same. */
    inflight_read(c, c->outer);
    inflight_intend(c, INTENT_UVM, &client_file, c->cmd, a->end->client, a->end->memory);
    made = make(c, a, &client_file);
    {
        WITH_TENANT(t);
        card = external_mapper(&t->external->map[noted.slot[0]]);
        if (made.kind == ANSWER && made.rm_status == NV_OK)
            replace(t, c, a, &noted);
        else
            forget(t, &noted);
    }
    if (made.kind == ANSWER && made.rm_status == NV_ERR_NO_MEMORY)
        return parked_or(c, card, page_tables_most(a->begin->range.length), made.rm_status);
    return made;
}

struct answer mediate_map_external(struct call *c)
{
    struct asked a;
    int e = read_map(c, &a);
    struct answer made = e < 0 ? answer_of(e) : account_and_make(c, &a);
    uint32_t status = made.rm_status;

    if (made.kind != ANSWER)
        return made;
    memcpy(c->params, &status, sizeof(status));
    c->params_at = c->outer_at + a.bytes - UVM_MAP_EXTERNAL_STATUS_FROM_END;
    c->params_bytes = sizeof(status);
    c->params_out = true;
    return made;
}
