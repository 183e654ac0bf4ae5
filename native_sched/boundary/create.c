#include "create.h"
#include "ending.h"
#include "../channels/groups.h"
#include "../rm/channel.h"
#include "caught.h"
#include "control.h"
#include "external.h"
#include "managed.h"
#include "registered.h"
#include <errno.h>
#include <string.h>

int class_params(const struct call *c, uint32_t class_id)
{
    return class_id == NV01_ROOT_NON_PRIV ? -ENOENT : rm_class_params(&c->m->rm, class_id);
}

bool class_is_root(uint32_t class_id)
{
    return class_id == NV01_ROOT || class_id == NV01_ROOT_CLIENT;
}

bool class_is_memory(uint32_t class_id)
{
    return class_id == NV01_MEMORY_LOCAL_USER;
}

bool class_is_virtual(uint32_t class_id)
{
    return class_id == NV01_MEMORY_VIRTUAL || class_id == NV50_MEMORY_VIRTUAL;
}

bool class_has_names(uint32_t class_id)
{
    return class_is_memory(class_id) || class_id == NV01_MEMORY_SYSTEM;
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

/* Bytes of video memory the object may take: what the flags say of its kind is the driver's to judge, and a
 * reservation that it does not use is given back. */
static uint64_t cost_of(const struct call *c, const struct creation *a, uint32_t card)
{
    const struct rm_memory *mem = (const void *)c->params;
    const struct card *k = mediator_card(c->m, card);
    uint64_t own = c->m->ops->own_bytes ? c->m->ops->own_bytes(a->class_id, c->params) : 0;

    if (a->class_id == KEPLER_CHANNEL_GROUP_A && k)
        return own + (copies(c) ? k->copy_context_bytes : k->context_bytes);
    if (a->class_id != NV01_MEMORY_LOCAL_USER)
        return own;
    return round_up(mem->size, c->m->ops->granule_bytes);
}

/* What the driver says it gave. */
static uint64_t given(const struct call *c, const struct creation *a, uint64_t asked)
{
    const struct rm_memory *mem = (const void *)c->params;
    uint64_t bytes;

    if (a->class_id != NV01_MEMORY_LOCAL_USER)
        return asked;
    bytes = round_up(mem->size, c->m->ops->granule_bytes);
    return bytes > asked ? bytes : asked;
}

/* Where an object goes and what it costs. */
struct place {
    const struct open_file *file;
    uint32_t parent; /* slot, 0 for a root client */
    uint32_t card;
    uint64_t reserved;
};

/* Handles that RM gives out itself begin at 0xcaf00000 (RS_UNIQUE_HANDLE_BASE), libcuda's at 0x5c000000. */
enum { OWN_HANDLES = 0x39000000, OWN_HANDLES_MASK = 0xffffff };

uint32_t choose_handle(struct tenant *t, uint32_t client, uint32_t *handle)
{
    const struct objects *o = &t->objects;

    if (*handle)
        return objects_find(o, client, *handle) ? NV_ERR_INSERT_DUPLICATE_NAME : NV_OK;
    do
        *handle = OWN_HANDLES | (t->last_handle++ & OWN_HANDLES_MASK);
    while (objects_find(o, client, *handle));
    return NV_OK;
}

uint32_t same_handle_again(const struct call *c, uint32_t nth)
{
    uint64_t id = (c->caller->req->id + nth) * 0x9e3779b97f4a7c15u;

    return OWN_HANDLES | ((uint32_t)(id >> 32) & OWN_HANDLES_MASK);
}

/* Finds the place of a new object and sets its cost aside. NV_OK or another RM status. */
static uint32_t reserve(struct call *c, struct creation *a, struct place *p)
{
    struct tenant *t = c->tenant;
    const struct card *k;
    uint32_t status;
    WITH_TENANT(t);

    p->card = OBJECT_NO_CARD;
    if (class_is_root(a->class_id))
        return NV_OK;
    if (!(p->parent = call_find_on(c, p->file, a->root, a->parent)))
        return call_find_on(c, p->file, a->root, a->root) ? NV_ERR_INVALID_OBJECT_PARENT
                                                          : NV_ERR_INVALID_CLIENT;
    if ((status = choose_handle(t, a->root, &a->handle)))
        return status;
    p->card = t->objects.slot[p->parent].card;
    if (a->class_id == NV01_DEVICE_0) {
        k = granted_instance(c, ((const struct rm_device *)(const void *)c->params)->id);
        if (!k)
            return NV_ERR_INVALID_DEVICE;
        p->card = k->index;
    }
    if (p->card == OBJECT_NO_CARD)
        return NV_OK;
    if ((a->class_id == KEPLER_CHANNEL_GROUP_A || rm_class_is_channel(a->class_id)) && registered_full(t))
        return NV_ERR_NO_MEMORY;
    p->reserved = cost_of(c, a, p->card);
    return ledger_reserve(&t->ledger[p->card], p->reserved) < 0 ? NV_ERR_NO_MEMORY : NV_OK;
}

static void give_back(struct call *c, const struct place *p)
{
    if (p->card == OBJECT_NO_CARD)
        return;
    WITH_TENANT(c->tenant);
    ledger_settle(&c->tenant->ledger[p->card], p->reserved, 0);
}

static void end_charge(void *context, const struct rm_object *obj)
{
    struct tenant *t = context;

    if (obj->card != OBJECT_NO_CARD && obj->bytes && !external_holds(t->external, obj) &&
        !registered_holds(t->registered, obj))
        ledger_release(&t->ledger[obj->card], obj->bytes);
    if (obj->class_id == KEPLER_CHANNEL_GROUP_A || rm_class_is_channel(obj->class_id))
        groups_forget(t->groups, obj->client, obj->handle);
}

void drop_object(struct tenant *t, uint32_t slot)
{
    objects_drop(&t->objects, slot, end_charge, t);
}

/* Of what the driver has given. */
static uint32_t page_shift(const struct rm_memory *mem)
{
    static const uint32_t shift[] = {0, 12, 16, 21}; /* huge ones may be larger */

    return shift[mem->attr >> RM_MEMORY_ATTR_PAGE_SHIFT & RM_MEMORY_ATTR_PAGE_MASK];
}

/* What the scheduler needs of it: a channel without USERD of its own is one that takes no work. And how memory is mapped. */
static void note_kind(const struct call *c, const struct creation *a, struct rm_object *obj)
{
    struct rm_channel channel;

    if (a->class_id == NV01_MEMORY_LOCAL_USER || a->class_id == NV01_MEMORY_SYSTEM)
        obj->page_shift = page_shift((const void *)c->params);
    else if (a->class_id == KEPLER_CHANNEL_GROUP_A) {
        obj->engine_type = ((const struct rm_channel_group *)(const void *)c->params)->engine_type;
    } else if (rm_class_is_channel(a->class_id)) {
        rm_channel_read(&c->m->rm, c->params, &channel);
        obj->userd.memory = channel.userd_memory[0];
        obj->userd.offset = channel.userd_offset[0];
    }
}

/* Adds the object the driver has just made and charges what it takes; the reservation is used up only then. */
static int book(struct call *c, const struct creation *a, const struct place *p, uint64_t bytes)
{
    struct tenant *t = c->tenant;
    struct process_id owner = {0};
    int64_t slot;
    int e;

    if (class_is_root(a->class_id) && (e = caller_process_id(c->caller, &owner)) < 0)
        return e;
    WITH_TENANT(t);
    /* A client is never added to a file that is gone: nothing would end it. */
    if (class_is_root(a->class_id) && !files_open(c->m->files, p->file))
        return -EBADF;
    slot = objects_add(&t->objects, p->parent, a->root, a->handle, a->class_id);
    if (slot < 0)
        return (int)slot;
    t->objects.slot[slot].card = p->card;
    t->objects.slot[slot].file = class_is_root(a->class_id) ? p->file->id : 0;
    t->objects.slot[slot].owner = owner;
    note_kind(c, a, &t->objects.slot[slot]);
    if (p->card != OBJECT_NO_CARD) {
        if ((e = ledger_settle(&t->ledger[p->card], p->reserved, bytes)) < 0) {
            drop_object(t, (uint32_t)slot);
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
    bool group = obj->class_id == KEPLER_CHANNEL_GROUP_A;
    const struct card *card = mediator_card(m, obj->card);

    if (!card || !(group || rm_class_is_channel(obj->class_id)))
        return false;
    *out = (struct rm_target){.file = *file, .client = obj->client, .handle = obj->handle, .rm = &m->rm};
    if (!group)
        out->userd = (struct userd_place){card, obj->userd.memory, obj->userd.offset};
    return true;
}

uint32_t subdevice_below(const struct objects *o, uint32_t device)
{
    uint32_t i = o->slot[device].first_child;

    while (i && o->slot[i].class_id != NV20_SUBDEVICE_0)
        i = o->slot[i].next_sibling;
    return i ? o->slot[i].handle : 0;
}

/* Nothing runs on the card that the scheduler cannot see and stop: what it cannot take on is not made. */
static int announce(struct call *c, const struct creation *a, const struct place *p)
{
    bool group = a->class_id == KEPLER_CHANNEL_GROUP_A;
    struct rm_target name;
    struct rm_object obj;
    uint32_t subdevice;

    if (!group && !rm_class_is_channel(a->class_id))
        return 0;
    {
        const struct objects *o = &c->tenant->objects;
        WITH_TENANT(c->tenant);
        obj = o->slot[call_find_on(c, p->file, a->root, a->handle)];
        subdevice = group ? subdevice_below(o, p->parent) : 0;
    }

    if (!object_target(c->m, &obj, p->file, &name))
        return 0;
    return group ? groups_add(c->tenant->groups, &name, p->card, obj.engine_type, subdevice)
                 : groups_add_channel(c->tenant->groups, &name, a->parent);
}

/* False when it may still be there. */
static bool unmake_on(struct call *c, const struct open_file *file, uint32_t client, uint32_t parent,
                      uint32_t handle)
{
    struct rm_free f = {.root = client, .parent = parent, .handle = handle};
    int e = mediator_call(c->m, file, NULL, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, sizeof(f));

    return e == -EBADF || (e == 0 && f.status == NV_OK);
}

bool unmake(struct call *c, uint32_t client, uint32_t parent, uint32_t handle)
{
    return unmake_on(c, &c->file, client, parent, handle);
}

/* An object that the driver has made and nobody may have. False when it stays all the same, and so does its charge. */
static bool take_back(struct call *c, const struct creation *a, const struct place *p, uint32_t *status)
{
    *status = NV_ERR_NO_MEMORY;
    stats_refused(&c->tenant->stats, *status); /* the driver had said yes */
    return unmake_on(c, p->file, a->root, class_is_root(a->class_id) ? 0 : a->parent, a->handle);
}

/* The driver has ended the object: so do the books. */
static void ended(struct call *c, uint32_t slot)
{
    {
        WITH_TENANT(c->tenant);
        registered_note(c->m, c->tenant, slot);
        drop_object(c->tenant, slot);
    }
    registered_look(c->m, c->tenant, true);
}

/* A channel that the driver had made: its name could be guessed meanwhile. */
static void not_booked(struct call *c, const struct creation *a)
{
    {
        WITH_TENANT(c->tenant);
        registered_note_channel(c->tenant, a->root, a->parent, a->handle);
    }
    registered_look(c->m, c->tenant, true);
}

static int create_in(struct call *c, struct place *p, struct creation *a, uint32_t *status)
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
        caught_intend(c, INTENT_MAKE, file, a->root, a->parent, a->handle);
    e = call_driver_on(c, file, RM_CMD(NV_ESC_RM_ALLOC, sizeof(alloc)), &alloc, sizeof(alloc));
    *status = alloc.status;
    if (e < 0 || alloc.status != NV_OK) {
        give_back(c, p);
        return e;
    }
    a->handle = alloc.handle;
    a->root = class_is_root(a->class_id) ? alloc.handle : a->root;
    e = book(c, a, p, given(c, a, p->reserved));
    if (e < 0) {
        /* The driver lets go of it before the account does. */
        if (take_back(c, a, p, status)) {
            if (e != -ENOMEM)
                give_back(c, p);
            if (rm_class_is_channel(a->class_id))
                not_booked(c, a);
        }
        return 0;
    }
    if (a->class_id == NV20_SUBDEVICE_0)
        utilization_expected(c->tenant);
    if (announce(c, a, p) < 0 && take_back(c, a, p, status))
        ended(c, call_find_on(c, file, a->root, a->handle));
    return 0;
}

int create_object(struct call *c, const struct open_file *file, struct creation *a, uint32_t *status)
{
    struct place place = {.file = file};
    struct groups *groups = c->tenant->groups;
    uint32_t group = rm_class_is_channel(a->class_id) ? a->parent : 0;
    int e;

    *status = reserve(c, a, &place);
    if (*status == NV_ERR_NO_MEMORY && managed_held(c->tenant) && managed_look(c->m, c->tenant))
        *status = reserve(c, a, &place);
    for (e = 1; *status == NV_ERR_NO_MEMORY && (e = ending_wait(c)) > 0;)
        *status = reserve(c, a, &place);
    if (*status)
        return e < 0 ? e : 0;
    if (group && (e = groups_channel_begins(groups, a->root, group)) < 0) {
        *status = e == -ESRCH ? NV_ERR_INVALID_OBJECT_PARENT : NV_ERR_NO_MEMORY;
        give_back(c, &place);
        return 0;
    }
    e = create_in(c, &place, a, status);
    if (group)
        groups_channel_ends(groups, a->root, group);
    return e;
}

/* Whether a subscription to a MIG instance may end with it, known to us or not: it holds a descriptor of the process that
 * made it, which RM closes by its number in whichever process frees. The tenant's calls are held. */
static bool may_end_subscription(const struct call *c, uint32_t slot)
{
    uint32_t class_id = c->tenant->objects.slot[slot].class_id;

    if (!mediator_has_instances(c->m))
        return false;
    return !slot || class_is_root(class_id) || class_id == NV01_DEVICE_0 || class_id == NV20_SUBDEVICE_0 ||
           class_id == AMPERE_SMC_PARTITION_REF || class_id == AMPERE_SMC_EXEC_PARTITION_REF;
}

int destroy_object(struct call *c, uint32_t root, uint32_t handle, uint32_t *status)
{
    struct rm_free f = {.root = root, .handle = handle};
    struct tenant *t = c->tenant;
    uint32_t slot;
    int e;

    {
        WITH_TENANT(t);
        if (!call_find(c, root, root)) {
            *status = NV_ERR_INVALID_CLIENT;
            return 0;
        }
        slot = call_find(c, root, handle);
    }
    if (groups_need(t->groups, root, handle)) {
        *status = NV_ERR_STATE_IN_USE;
        return 0;
    }
    c->apart = may_end_subscription(c, slot);
    if (slot)
        caught_intend(c, INTENT_FREE, &c->file, root, 0, handle);
    e = call_driver_on(c, &c->file, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, sizeof(f));
    c->apart = false;
    *status = f.status;
    if (e == 0 && f.status == NV_OK && slot)
        ended(c, slot);
    return e;
}

int book_alias(struct tenant *t, uint32_t parent, uint32_t source, uint32_t client, uint32_t handle)
{
    int64_t slot = objects_add(&t->objects, parent, client, handle, t->objects.slot[source].class_id);

    if (slot < 0)
        return (int)slot;
    objects_alias(&t->objects, source, (uint32_t)slot);
    objects_commit(&t->objects, (uint32_t)slot);
    return 0;
}

static void end_all_of(const struct mediator *m, struct tenant *t, const struct open_file *file)
{
    struct objects *o = &t->objects;
    WITH_TENANT(t);

    for (uint32_t i = o->slot[0].first_child; i; i = o->slot[i].next_sibling)
        if (o->slot[i].file == file->id)
            registered_note(m, t, i);
    objects_drop_file(o, file->id, end_charge, t);
    external_drop_file(t->external, file->id);
    registered_file_gone(t, file);
    let_through_forget(t, file->id);
}

bool mediate_file_gone(const struct mediator *m, const struct open_file *file)
{
    struct tenant *t = file->tenant;

    if (!t->lost) {
        end_all_of(m, t, file);
        /* nvidia-uvm takes as long as the tenant has it take, and everybody's files end here. */
        registered_look(m, t, false);
    }
    ending_over(t);
    /* Whichever of its last file and its last listener ends after the other sees so: both are counted here. */
    WITH_TENANT(t);
    files_forget(m->files, t);
    return !t->listeners;
}
