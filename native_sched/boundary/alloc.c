/* The escapes that make and free objects by class: ALLOC in both its layouts, ALLOC_OBJECT, FREE. A tenant's calls of this
 * kind are carried out one after the other, so that no listener's call can slip between what another's asked and what it
 * booked. */
#include "create.h"
#include "let_through.h"
#include "subscriptions.h"
#include <errno.h>
#include <string.h>

/* Fetches the parameters of a class, as many as the driver takes: it sizes them by class, whatever size the caller names
 * (serverAllocApiCopyIn()). */
static int fetch_params(struct call *c, uint32_t class_id, uint64_t at, uint32_t *status)
{
    int bytes = class_params(c, class_id);

    if (class_is_of_operators(class_id)) {
        *status = NV_ERR_INSUFFICIENT_PERMISSIONS;
        return 0;
    }
    /* Everybody's use of the card, and from 590.44 on their pids, in a page that is mapped: as RM answers a vGPU's guest. */
    if (class_id == RM_USER_SHARED_DATA) {
        *status = NV_ERR_NOT_SUPPORTED;
        return 0;
    }
    if (bytes < 0) {
        *status = NV_ERR_INVALID_CLASS;
        return 0;
    }
    if (bytes && !at)
        memset(c->params, 0, (size_t)bytes);
    return call_params(c, at, (uint32_t)bytes);
}

static bool class_is_event(uint32_t class_id)
{
    return class_id == NV01_EVENT || class_id == NV01_EVENT_OS_EVENT;
}

static bool is_foreign(struct call *c, uint32_t client)
{
    WITH_TENANT(c->tenant);

    return client && !objects_find(&c->tenant->objects, client, client);
}

/* Objects that work on another client's, which their parameters name: RM would let any client of the same process be named, and
 * of others by what they share. A device it lets share the address space of anybody's (deviceInitClientShare()). */
static bool names_foreign_client(struct call *c, uint32_t class_id)
{
    const struct rm_event *event = (const void *)c->params;
    const struct rm_debugger *debugger = (const void *)c->params;
    const struct rm_device *device = (const void *)c->params;

    if (class_is_event(class_id))
        return is_foreign(c, event->client);
    if (class_id == GT200_DEBUGGER)
        return is_foreign(c, debugger->client);
    if (class_id == NV01_DEVICE_0)
        return is_foreign(c, device->client_share) || is_foreign(c, device->target_client);
    return false;
}

static bool by_its_caller(struct call *c)
{
    struct driver_call d = call_for_driver(c, &c->file);

    return c->m->ops->must_continue && c->m->ops->must_continue(&d);
}

/* RM makes the page tables of virtual memory with it, of the card's memory: two GiB for a TiB (virtmemConstruct() in
 * virtual_mem.c). It is asked to make them when something is mapped there (map_dma.c). Memory that has them in any case is
 * charged. True where the caller had not asked for that itself. */
static bool ask_without_tables(struct call *c, uint32_t class_id)
{
    enum { NOT_SO = RM_MEMORY_FLAG_LAZY | RM_MEMORY_FLAG_EXTERNALLY_MANAGED | RM_MEMORY_FLAG_SPARSE };
    struct rm_memory *mem = (void *)c->params;

    if (class_id != NV50_MEMORY_VIRTUAL || mem->flags & NOT_SO)
        return false;
    mem->flags |= RM_MEMORY_FLAG_LAZY;
    return true;
}

static int make(struct call *c, struct creation *a, uint32_t *status)
{
    struct open_file file = c->file;
    bool lazily;
    int e;

    if (names_foreign_client(c, a->class_id)) {
        *status = NV_ERR_INVALID_CLIENT;
        return 0;
    }
    /* Programs have a card's file for each event, and make the event there: of all classes RM takes these two there alone. */
    if (class_is_event(a->class_id) && !call_control_file(c, &file)) {
        *status = NV_ERR_INVALID_CLIENT;
        return 0;
    }
    WITH_CALLS_OF(c->tenant);
    if (class_is_root(a->class_id) && by_its_caller(c))
        return let_through(c, status);
    if (class_is_subscription(a->class_id) && by_its_caller(c))
        return subscribe(c, a, status);
    lazily = ask_without_tables(c, a->class_id);
    e = create_object(c, &file, a, status);
    if (lazily)
        ((struct rm_memory *)(void *)c->params)->flags &= ~(uint32_t)RM_MEMORY_FLAG_LAZY;
    c->params_out = e == 0 && *status == NV_OK && c->params_bytes != 0;
    return e;
}

/* Both layouts begin alike; where they say how it went they differ. */
static int alloc(struct call *c, uint32_t *status_out)
{
    struct rm_alloc_short *o = (void *)c->outer;
    struct creation a = {o->root, o->parent, o->handle, o->class_id};
    uint32_t status = NV_OK;
    int e = fetch_params(c, a.class_id, o->params, &status);

    if (e == 0 && status == NV_OK)
        e = make(c, &a, &status);
    if (e == 0 && !c->passed) {
        o->handle = a.handle;
        *status_out = status;
    }
    return e;
}

int mediate_alloc(struct call *c)
{
    struct rm_alloc *o = (void *)c->outer;

    return alloc(c, &o->status);
}

int mediate_alloc_short(struct call *c)
{
    struct rm_alloc_short *o = (void *)c->outer;

    return alloc(c, &o->status);
}

/* An allocation without parameters. Root clients have the other ways. */
int mediate_alloc_object(struct call *c)
{
    struct rm_alloc_object *o = (void *)c->outer;
    struct creation a = {o->root, o->parent, o->handle, o->class_id};

    if (class_params(c, a.class_id) != 0 || class_is_root(a.class_id)) {
        o->status = NV_ERR_INVALID_CLASS;
        return 0;
    }
    WITH_CALLS_OF(c->tenant);
    return create_object(c, &c->file, &a, &o->status);
}

int mediate_free(struct call *c)
{
    struct rm_free *f = (void *)c->outer;

    WITH_CALLS_OF(c->tenant);
    return destroy_object(c, f->root, f->handle, &f->status);
}
