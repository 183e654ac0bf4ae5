#include "create.h"
#include "control.h"
#include "handlers.h"
#include "host_memory.h"
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/call/parked.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
#include "native_sched/nvidia/boundary/objects/retained.h"
#include "native_sched/nvidia/channels/groups.h"
#include "native_sched/nvidia/rm/channel.h"
#include "native_sched/nvidia/rm/peers_abi.h"
#include "native_sched/process/memory_nodes.h"
#include <errno.h>
#include <string.h>

static bool is_client(const struct creation *a)
{
    return rm_kind_of(a->class_id) == RM_KIND_ROOT;
}

static uint64_t round_up(uint64_t bytes, uint64_t granule)
{
    return bytes > UINT64_MAX - granule ? UINT64_MAX : (bytes + granule - 1) / granule * granule;
}

static const struct card *granted_instance(const struct call *c, uint32_t device_instance)
{
    /* Several MIG instances are cards with the number of one device. */
    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->m->card[i].device_instance == device_instance && c->tenant->granted[c->m->card[i].index])
            return &c->m->card[i];
    return NULL;
}

static bool copies(const struct call *c)
{
    return ((const struct rm_channel_group *)(const void *)c->params)->engine_type >= RM_ENGINE_COPY0;
}

/* RM rounds memory up to the pages that are asked for, 512 MiB for a byte, and to 2 MiB from there on where
 * none are. */
static uint64_t rounded_by_rm(const struct rm_memory *mem, uint64_t granule)
{
    enum { BY_SIZE, HUGE_PAGES = 3 };
    static const uint64_t huge[] = {2ull << 20, 2ull << 20, 512ull << 20, 256ull << 30};
    uint32_t pages = mem->attr >> RM_MEMORY_ATTR_PAGE_SHIFT & RM_MEMORY_ATTR_PAGE_MASK;

    if (pages == HUGE_PAGES)
        granule = huge[mem->attr2 >> RM_MEMORY_ATTR2_HUGE_SHIFT & RM_MEMORY_ATTR2_HUGE_MASK];
    else if (pages == BY_SIZE && mem->size >= huge[0])
        granule = huge[0];
    return round_up(mem->size, granule);
}

/* Bytes of video memory the object may take: what the flags say of its kind is the driver's to judge, and a
 * reservation that it does not use is given back. */
static uint64_t cost_of(const struct call *c, const struct creation *a, uint32_t card)
{
    const struct rm_memory *mem = (const void *)c->params;
    const struct card *k = mediator_card(c->m, card);
    uint64_t own = c->m->ops->own_bytes ? c->m->ops->own_bytes(a->class_id, c->params) : 0;

    if (rm_kind_of(a->class_id) == RM_KIND_GROUP && k)
        return own + (copies(c) ? k->copy_context_bytes : k->context_bytes);
    if (rm_kind_of(a->class_id) != RM_KIND_VIDEO_MEMORY)
        return own;
    return rounded_by_rm(mem, c->m->ops->granule_bytes);
}

/* Bytes that the driver gave: it has written the size anew. */
static uint64_t reported_bytes(const struct call *c, const struct creation *a, uint64_t reserved)
{
    const struct rm_memory *mem = (const void *)c->params;

    if (rm_kind_of(a->class_id) != RM_KIND_VIDEO_MEMORY)
        return reserved;
    return round_up(mem->size, c->m->ops->granule_bytes);
}

/* A driver, and so its tenants together, have a limited number of a video engine's sessions, and of the
 * kernel's memory that mappers' queues are in. */
static bool has_enough(const struct tenant *t, uint32_t class_id)
{
    enum { OBJECTS_MAX = 64 };
    enum rm_kind kind = rm_kind_of(class_id);
    uint32_t objects = 0;

    if (t->whole || (kind != RM_KIND_VIDEO_SESSION && kind != RM_KIND_MAPPER))
        return false;
    for (uint32_t i = objects_next(&t->objects, 0, 0); i; i = objects_next(&t->objects, 0, i))
        objects += rm_kind_of(t->objects.slot[i].class_id) == kind;
    return objects >= OBJECTS_MAX;
}

/* Where an object goes and what it costs. */
struct place {
    const struct open_file *file;
    uint32_t parent; /* slot, 0 for a root client */
    uint32_t card;
    uint64_t reserved;
    bool no_room; /* reserve(): not its cap is in the way, but a restoration */
};

/* Finds the place of a new object and sets its cost aside. NV_OK or another RM status. */
static uint32_t reserve(struct call *c, struct creation *a, struct place *p)
{
    struct tenant *t = c->tenant;
    const struct card *k;
    uint32_t status;
    int e;
    WITH_TENANT(t);

    p->card = OBJECT_NO_CARD;
    if (is_client(a))
        return NV_OK;
    if (!(p->parent = call_find_on(c, p->file, a->root, a->parent)))
        return call_find_on(c, p->file, a->root, a->root) ? NV_ERR_INVALID_OBJECT_PARENT
                                                          : NV_ERR_INVALID_CLIENT;
    if (has_enough(t, a->class_id))
        return NV_ERR_INSUFFICIENT_RESOURCES;
    if ((status = choose_handle(t, a->root, &a->handle)))
        return status;
    p->card = t->objects.slot[p->parent].card;
    /* Groups of a client without a subdevice cannot be stopped (channels/suspend.c). Every library makes one
     * first. */
    if (rm_kind_of(a->class_id) == RM_KIND_GROUP && !subdevice_below(&t->objects, p->parent))
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (rm_kind_of(a->class_id) == RM_KIND_DEVICE) {
        k = granted_instance(c, ((const struct rm_device *)(const void *)c->params)->id);
        if (!k)
            return NV_ERR_INVALID_DEVICE;
        p->card = k->index;
    }
    /* RM has them below the client, and ends them with a subdevice. No memory of a card is taken for them. */
    if (rm_kind_of(a->class_id) == RM_KIND_P2P)
        p->parent = call_find_on(c, p->file, a->root,
                                 ((const struct rm_p2p *)(const void *)c->params)->subdevice);
    if (!p->parent)
        return NV_ERR_INVALID_ARGUMENT; /* another thread freed the subdevice meanwhile */
    if (p->card == OBJECT_NO_CARD)
        return NV_OK;
    p->reserved = cost_of(c, a, p->card);
    parked_note_lent(c, &t->ledger[p->card], p->reserved);
    e = ledger_reserve(&t->ledger[p->card], p->reserved);
    p->no_room = e == -EAGAIN;
    return e < 0 ? NV_ERR_NO_MEMORY : NV_OK;
}

static void give_back(struct call *c, const struct place *p)
{
    if (p->card == OBJECT_NO_CARD)
        return;
    WITH_TENANT(c->tenant);
    ledger_commit(&c->tenant->ledger[p->card], p->reserved, 0);
}

/* The page size of what the driver has given, as a shift; 0: not known. */
static uint32_t page_shift(const struct rm_memory *mem)
{
    static const uint32_t shift[] = {0, 12, 16, 21}; /* huge ones may be larger */

    return shift[mem->attr >> RM_MEMORY_ATTR_PAGE_SHIFT & RM_MEMORY_ATTR_PAGE_MASK];
}

/* What the scheduler needs of it: a channel without USERD of its own is one that takes no work. And how
 * memory is mapped. */
static void note_kind(const struct call *c, const struct creation *a, struct rm_object *obj)
{
    struct rm_channel channel;

    if (rm_class_has_names(a->class_id)) {
        obj->page_shift = page_shift((const void *)c->params);
        obj->length = ((const struct rm_memory *)(const void *)c->params)->size;
    } else if (rm_kind_of(a->class_id) == RM_KIND_GROUP) {
        obj->engine_type = ((const struct rm_channel_group *)(const void *)c->params)->engine_type;
        obj->wraps = a->wraps;
    } else if (rm_kind_of(a->class_id) == RM_KIND_CHANNEL) {
        rm_channel_read(&c->m->rm, c->params, &channel);
        obj->userd.memory = channel.userd_memory[0];
        obj->userd.offset = channel.userd_offset[0];
    } else if (rm_kind_of(a->class_id) == RM_KIND_P2P) {
        obj->peer = ((const struct rm_p2p *)(const void *)c->params)->peer;
    }
}

/* Adds the object the driver has just made and charges what it takes; the reservation is used up only
 * then. */
static int account_add(struct call *c, const struct creation *a, const struct place *p, uint64_t bytes)
{
    struct tenant *t = c->tenant;
    struct process_id owner = {0};
    int64_t slot;
    int e;

    if (is_client(a) && (e = caller_process_id(c->caller, &owner)) < 0)
        return e;
    WITH_TENANT(t);
    /* A client is never added to a file that is gone: nothing would end it. */
    if (is_client(a) && !files_open(c->m->files, p->file))
        return -EBADF;
    slot = objects_add(&t->objects, p->parent, a->root, a->handle, a->class_id);
    if (slot < 0)
        return (int)slot;
    t->objects.slot[slot].card = p->card;
    t->objects.slot[slot].file = is_client(a) ? p->file->id : 0;
    t->objects.slot[slot].owner = owner;
    note_kind(c, a, &t->objects.slot[slot]);
    if (p->card != OBJECT_NO_CARD) {
        if ((e = ledger_commit(&t->ledger[p->card], p->reserved, bytes)) < 0) {
            object_drop(t, (uint32_t)slot);
            return e;
        }
        t->objects.slot[slot].bytes = t->objects.slot[slot].memory_bytes = bytes;
    }
    objects_commit(&t->objects, (uint32_t)slot);
    return 0;
}

bool object_target(const struct mediator *m, const struct rm_object *obj, const struct open_file *file,
                   struct rm_target *out)
{
    bool group = rm_kind_of(obj->class_id) == RM_KIND_GROUP;
    const struct card *card = mediator_card(m, obj->card);

    if (!card || !(group || rm_kind_of(obj->class_id) == RM_KIND_CHANNEL))
        return false;
    *out = (struct rm_target){.file = *file, .client = obj->client, .handle = obj->handle, .rm = &m->rm};
    if (!group)
        out->userd = (struct userd_place){card, obj->class_id, obj->userd.memory, obj->userd.offset};
    return true;
}

uint32_t subdevice_below(const struct objects *o, uint32_t device)
{
    uint32_t i = o->slot[device].first_child;

    while (i && rm_kind_of(o->slot[i].class_id) != RM_KIND_SUBDEVICE)
        i = o->slot[i].next_sibling;
    return i ? o->slot[i].handle : 0;
}

int object_announce(struct call *c, const struct open_file *file, const struct creation *a)
{
    bool group = rm_kind_of(a->class_id) == RM_KIND_GROUP;
    struct rm_target name;
    struct rm_object obj;
    uint32_t subdevice;

    if (!group && rm_kind_of(a->class_id) != RM_KIND_CHANNEL)
        return 0;
    {
        const struct objects *o = &c->tenant->objects;
        WITH_TENANT(c->tenant);
        obj = o->slot[call_find_on(c, file, a->root, a->handle)];
        subdevice = group ? subdevice_below(o, obj.parent) : 0;
    }
    if (!object_target(c->m, &obj, file, &name))
        return 0;
    return group ? groups_add(c->tenant->groups, &name, obj.card, obj.engine_type, subdevice)
                 : groups_add_channel(c->tenant->groups, &name, a->parent);
}

/* False when it may still be there. */
static bool object_roll_back_on(struct call *c, const struct open_file *file, uint32_t client,
                                uint32_t parent, uint32_t handle)
{
    struct rm_free f = {.root = client, .parent = parent, .handle = handle};
    int e = mediator_call(c->m, file, NULL, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, sizeof(f));

    return e == -EBADF || (e == 0 && f.status == NV_OK);
}

bool object_roll_back(struct call *c, uint32_t client, uint32_t parent, uint32_t handle)
{
    return object_roll_back_on(c, &c->file, client, parent, handle);
}

/* Frees an object that the driver has made and that may not be. False: it stays, and so does its charge. */
static bool roll_back_made(struct call *c, const struct creation *a, const struct place *p)
{
    stats_refused(&c->tenant->stats, NV_ERR_NO_MEMORY); /* the driver had said yes */
    return object_roll_back_on(c, p->file, a->root, is_client(a) ? 0 : a->parent, a->handle);
}

/* The driver has ended the object: so does the account. */
static void ended(struct call *c, uint32_t slot)
{
    retained_end(c->m, c->tenant, slot, false);
    WITH_TENANT(c->tenant);
    object_drop(c->tenant, slot);
}

static uint32_t find_made(const struct call *c, const struct open_file *file, const struct creation *a)
{
    WITH_TENANT(c->tenant);

    return call_find_on(c, file, a->root, a->handle);
}

static struct answer create_in(struct call *c, struct place *p, struct creation *a)
{
    const struct open_file *file = p->file;
    struct rm_alloc alloc = {
        .root = a->root,
        .parent = a->parent,
        .handle = a->handle,
        .class_id = a->class_id,
        .params_size = c->params_bytes,
    };
    int e;

    if (a->handle)
        inflight_intend(c, INTENT_MAKE, file, a->root, a->parent, a->handle);
    e = call_driver_on(c, file, RM_CMD(NV_ESC_RM_ALLOC, sizeof(alloc)), &alloc, sizeof(alloc));
    if (e < 0 || alloc.status != NV_OK) {
        give_back(c, p);
        return e == 0 && alloc.status == NV_ERR_NO_MEMORY ? parked_or(c, p->card, p->reserved, alloc.status)
                                                          : driver_answer(e, alloc.status);
    }
    a->handle = alloc.handle;
    a->root = is_client(a) ? alloc.handle : a->root;
    e = account_add(c, a, p, reported_bytes(c, a, p->reserved));
    if (e < 0) {
        /* The driver lets go of it before the account does. */
        if (roll_back_made(c, a, p) && e != -ENOMEM)
            give_back(c, p);
        return answered(NV_ERR_NO_MEMORY);
    }
    if (rm_kind_of(a->class_id) == RM_KIND_SUBDEVICE)
        utilization_expected(c->tenant);
    if (object_announce(c, file, a) >= 0)
        return answered(NV_OK);
    if (roll_back_made(c, a, p))
        ended(c, find_made(c, file, a));
    return answered(NV_ERR_NO_MEMORY);
}

/* The driver takes the memory for the thread that calls it, which is ours. */
static struct answer create_for_caller(struct call *c, struct place *p, struct creation *a)
{
    WITH_MEMORY_NODES_OF((pid_t)c->caller->req->pid);

    return create_in(c, p, a);
}

struct answer object_create(struct call *c, const struct open_file *file, struct creation *a)
{
    struct place place = {.file = file};
    struct groups *groups = c->tenant->groups;
    uint32_t group = rm_kind_of(a->class_id) == RM_KIND_CHANNEL ? a->parent : 0, status;
    struct answer made;
    int e = 1;

    assert_held(&c->tenant->calls);
    if (rm_kind_of(a->class_id) == RM_KIND_HOST_MEMORY &&
        host_memory_lacks(((const struct rm_memory *)(const void *)c->params)->size))
        return answered(NV_ERR_NO_MEMORY);
    status = reserve(c, a, &place);
    if (place.no_room)
        return parked_or(c, place.card, place.reserved, NV_ERR_NO_MEMORY);
    if (status == NV_ERR_NO_MEMORY && managed_held(c->tenant) && managed_reconcile_space(c->m, c->tenant))
        status = reserve(c, a, &place);
    while (status == NV_ERR_NO_MEMORY && (e = close_wait(c)) > 0)
        status = reserve(c, a, &place);
    if (status)
        return e < 0 ? failed(e) : answered(status);
    if (group && (e = groups_channel_begins(groups, a->root, group)) < 0) {
        give_back(c, &place);
        return answered(e == -ESRCH ? NV_ERR_INVALID_OBJECT_PARENT : NV_ERR_NO_MEMORY);
    }
    made = rm_kind_of(a->class_id) == RM_KIND_HOST_MEMORY ? create_for_caller(c, &place, a)
                                                          : create_in(c, &place, a);
    if (group)
        groups_channel_ends(groups, a->root, group);
    return made;
}

/* True if freeing the object may end a subscription to a MIG instance. A subscription holds a descriptor of
 * the process that made it, and RM closes that number in whichever process frees it. */
static bool may_end_subscription(const struct call *c, uint32_t slot)
{
    assert_held(&c->tenant->calls);
    if (!mediator_has_instances(c->m))
        return false;
    switch (slot ? rm_kind_of(c->tenant->objects.slot[slot].class_id) : RM_KIND_ROOT) {
    case RM_KIND_ROOT:
    case RM_KIND_DEVICE:
    case RM_KIND_SUBDEVICE:
    case RM_KIND_GPU_INSTANCE:
    case RM_KIND_COMPUTE_INSTANCE:
        return true;
    default:
        return false;
    }
}

/* What ends with it: a channel brings its group with it if it was made below a device (alloc.c). */
static uint32_t find_to_free(const struct call *c, uint32_t root, uint32_t *handle)
{
    const struct rm_object *o = c->tenant->objects.slot;
    uint32_t slot = call_find(c, root, *handle);

    if (slot && rm_kind_of(o[slot].class_id) == RM_KIND_CHANNEL && o[o[slot].parent].wraps) {
        slot = o[slot].parent;
        *handle = o[slot].handle;
    }
    return slot;
}

struct answer object_free(struct call *c, uint32_t root, uint32_t handle)
{
    struct tenant *t = c->tenant;
    struct rm_free f;
    uint32_t slot;
    int e;

    {
        WITH_TENANT(t);
        if (!call_find(c, root, root))
            return answered(NV_ERR_INVALID_CLIENT);
        slot = find_to_free(c, root, &handle);
    }
    f = (struct rm_free){.root = root, .handle = handle};
    if (groups_need(t->groups, root, handle))
        return answered(NV_ERR_STATE_IN_USE);
    c->unshared = may_end_subscription(c, slot);
    if (slot)
        inflight_intend(c, INTENT_FREE, &c->file, root, 0, handle);
    e = call_driver_on(c, &c->file, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, sizeof(f));
    c->unshared = false;
    if (e == 0 && f.status == NV_OK && slot)
        ended(c, slot);
    return driver_answer(e, f.status);
}

int object_add_alias(struct tenant *t, uint32_t parent, uint32_t source, uint32_t client, uint32_t handle)
{
    int64_t slot = objects_add(&t->objects, parent, client, handle, t->objects.slot[source].class_id);

    assert_held(&t->lock);
    if (slot < 0)
        return (int)slot;
    objects_alias(&t->objects, source, (uint32_t)slot);
    objects_commit(&t->objects, (uint32_t)slot);
    return 0;
}

static void end_all_of(struct tenant *t, const struct open_file *file)
{
    WITH_TENANT(t);

    objects_drop_of_file(t, file->id);
    external_drop_file(t->external, file->id);
}

/* RM frees what a file's clients have under one lock, and forgets the clients last
 * (serverFreeDisabledClients() in rs_server.c), so while one is there none
 * has gone. Finds a client of the file, 0 if it has exports alone; false: it has neither. */
static bool client_of(struct tenant *t, const struct open_file *file, uint32_t *client)
{
    const struct rm_object *o = t->objects.slot;
    uint32_t found = 0;
    WITH_TENANT(t);

    for (uint32_t i = o->first_child; i && !o[found].client; i = o[i].next_sibling)
        if (o[i].file == file->id)
            found = i;
    *client = o[found].client;
    return found;
}

enum file_holds account_file_holds(const struct mediator *m, const struct open_file *file)
{
    uint32_t client;

    /* The last close of a file of nvidia-uvm is mgpud's own, or was waited for (unpollable.h). */
    if (file->tenant->lost || file->kind == NODE_UVM || !client_of(file->tenant, file, &client))
        return FILE_HOLDS_NOTHING;
    if (!client)
        return FILE_HOLDS_EXPORTS;
    return m->ops->client_exists(m->driver, client) > 0 ? FILE_HOLDS_CLIENTS : FILE_HOLDS_NOTHING;
}

bool account_file_closed(const struct mediator *m, const struct open_file *file)
{
    struct tenant *t = file->tenant;

    assert_held(&t->calls);
    if (!t->lost)
        end_all_of(t, file);
    close_wait_wake(t);
    /* Whichever of its last file and its last listener ends after the other sees so: both are counted
     * here. */
    WITH_TENANT(t);
    files_forget(m->files, t);
    return !t->listeners;
}
