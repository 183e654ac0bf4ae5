#include "objects.h"
#include "base/reserve.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "native_sched/nvidia/rm/table.h"
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/random.h>

enum { BUCKET_BYTES = OBJECTS_BUCKETS * sizeof(uint32_t) };

static const struct slab_layout slots = {
    .record_bytes = sizeof(struct rm_object),
    .slots = OBJECTS_MAX,
    .check_at = offsetof(struct rm_object, check),
    .from = offsetof(struct rm_object, client),
    .to = offsetof(struct rm_object, memory),
    .next_at = offsetof(struct rm_object, hash_next),
};

int objects_init(struct objects *o, struct store *store, size_t at)
{
    int e = store_reach(store, at + sizeof(*o->slot));

    *o = (struct objects){.slab = {.layout = &slots, .store = store, .store_at = at}};
    if (e < 0)
        return e;
    o->slab.at = store->at + at;
    o->slot = (struct rm_object *)(void *)o->slab.at;
    o->bucket = reserve(BUCKET_BYTES);
    if (!o->bucket || getrandom(&o->hash_factor, sizeof(o->hash_factor), 0) < 0) {
        e = -errno;
        objects_destroy(o);
        return e;
    }
    o->hash_factor |= 1;
    return 0;
}

void objects_destroy(struct objects *o)
{
    if (o->bucket)
        munmap(o->bucket, BUCKET_BYTES);
    *o = (struct objects){0};
}

static uint32_t *bucket_of(const struct objects *o, uint32_t client, uint32_t handle)
{
    uint64_t key = ((uint64_t)client << 32 | handle) * o->hash_factor;

    return &o->bucket[key >> 47 & (OBJECTS_BUCKETS - 1)];
}

uint32_t objects_next_named(const struct objects *o, uint32_t after, uint32_t client, uint32_t handle)
{
    uint32_t i = after ? o->slot[after].hash_next : *bucket_of(o, client, handle);

    while (i && (o->slot[i].client != client || o->slot[i].handle != handle))
        i = o->slot[i].hash_next;
    return i;
}

uint32_t objects_find(const struct objects *o, uint32_t client, uint32_t handle)
{
    return client ? objects_next_named(o, 0, client, handle) : 0;
}

static void hash_in(struct objects *o, uint32_t i)
{
    uint32_t *head = bucket_of(o, o->slot[i].client, o->slot[i].handle);

    o->slot[i].hash_next = *head;
    *head = i;
}

static void hash_out(struct objects *o, uint32_t i)
{
    uint32_t *at = bucket_of(o, o->slot[i].client, o->slot[i].handle);

    while (*at && *at != i)
        at = &o->slot[*at].hash_next;
    if (*at)
        *at = o->slot[i].hash_next;
}

static void link_child(struct objects *o, uint32_t parent, uint32_t i)
{
    struct rm_object *p = &o->slot[parent], *c = &o->slot[i];

    c->parent = parent;
    c->prev_sibling = 0;
    c->next_sibling = p->first_child;
    if (p->first_child)
        o->slot[p->first_child].prev_sibling = i;
    p->first_child = i;
}

static void unlink_child(struct objects *o, uint32_t i)
{
    struct rm_object *c = &o->slot[i];

    if (c->prev_sibling)
        o->slot[c->prev_sibling].next_sibling = c->next_sibling;
    else
        o->slot[c->parent].first_child = c->next_sibling;
    if (c->next_sibling)
        o->slot[c->next_sibling].prev_sibling = c->prev_sibling;
}

int64_t objects_add(struct objects *o, uint32_t parent, uint32_t client, uint32_t handle, uint32_t class_id)
{
    int64_t i = slab_take(&o->slab);

    if (i < 0)
        return -ENOSPC;
    o->live++;
    o->slot[i] = (struct rm_object){
        .client = client,
        .handle = handle,
        .class_id = class_id,
        .card = parent ? o->slot[parent].card : OBJECT_NO_CARD,
    };
    link_child(o, parent, (uint32_t)i);
    hash_in(o, (uint32_t)i);
    return i;
}

static uint64_t counted(const struct rm_object *obj)
{
    bool is = obj->client && obj->card < MGPU_CARDS_MAX && rm_kind_of(obj->class_id) == RM_KIND_VIDEO_MEMORY;

    return is ? obj->length : 0;
}

static void count_in(struct objects *o, const struct rm_object *obj)
{
    if (counted(obj))
        o->named_bytes[obj->card] += obj->length;
    o->anonymous += !obj->client;
}

static void count_out(struct objects *o, const struct rm_object *obj)
{
    if (counted(obj))
        o->named_bytes[obj->card] -= obj->length;
    o->anonymous -= !obj->client;
}

void objects_commit(struct objects *o, uint32_t slot)
{
    count_in(o, &o->slot[slot]);
    slab_commit(&o->slab, slot);
}

/* Pre-order walk of a subtree without recursion: a tenant chooses its depth. */
uint32_t objects_after(const struct objects *o, uint32_t top, uint32_t i)
{
    while (i != top && !o->slot[i].next_sibling)
        i = o->slot[i].parent;
    return i == top ? 0 : o->slot[i].next_sibling;
}

uint32_t objects_next(const struct objects *o, uint32_t top, uint32_t i)
{
    return o->slot[i].first_child ? o->slot[i].first_child : objects_after(o, top, i);
}

static void link_alias(struct objects *o, uint32_t slot, uint32_t alias)
{
    struct rm_object *of = &o->slot[slot], *as = &o->slot[alias];
    uint32_t next = of->alias_next ? of->alias_next : slot;

    as->alias_next = next;
    as->alias_prev = slot;
    o->slot[next].alias_prev = alias;
    of->alias_next = alias;
}

uint64_t objects_memory(struct objects *o, uint32_t slot)
{
    struct rm_object *of = &o->slot[slot];

    if (!of->memory)
        __atomic_store_n(&of->memory, ++o->last_memory, __ATOMIC_RELEASE);
    return of->memory;
}

void objects_alias(struct objects *o, uint32_t slot, uint32_t alias)
{
    const struct rm_object *of = &o->slot[slot];
    struct rm_object *as = &o->slot[alias];

    as->memory = objects_memory(o, slot);
    as->memory_bytes = of->memory_bytes;
    as->page_shift = of->page_shift;
    as->length = of->length;
    link_alias(o, slot, alias);
}

/* The memory lives on under its other names, and so does the charge for it. */
static void leave_aliases(struct objects *o, uint32_t i)
{
    struct rm_object *obj = &o->slot[i];
    uint32_t next = obj->alias_next, prev = obj->alias_prev;

    if (!next)
        return;
    o->slot[next].bytes += obj->bytes;
    obj->bytes = 0;
    o->slot[next].alias_prev = next == prev ? 0 : prev;
    o->slot[prev].alias_next = next == prev ? 0 : next;
}

void objects_drop(struct objects *o, uint32_t slot, objects_ended_fn ended, void *context)
{
    uint32_t i = slot, parent;

    for (;;) {
        while (o->slot[i].first_child)
            i = o->slot[i].first_child;
        parent = o->slot[i].parent;
        if (o->slot[i].check)
            count_out(o, &o->slot[i]);
        slab_retract(&o->slab, i);
        leave_aliases(o, i);
        if (ended)
            ended(context, &o->slot[i]);
        hash_out(o, i);
        unlink_child(o, i);
        slab_put(&o->slab, i);
        o->live--;
        if (i == slot)
            return;
        i = parent;
    }
}

uint32_t objects_root(const struct objects *o, uint32_t slot)
{
    while (o->slot[slot].parent)
        slot = o->slot[slot].parent;
    return slot;
}

void objects_drop_file(struct objects *o, uint64_t file, objects_ended_fn ended, void *context)
{
    uint32_t i = o->slot[0].first_child, next;

    for (; i; i = next) {
        next = o->slot[i].next_sibling;
        if (o->slot[i].file == file)
            objects_drop(o, i, ended, context);
    }
}

/* Objects end children first and begin parents first, so each has its parent, unless another program wrote
 * here. */
static bool has_parent(const struct objects *o, uint32_t i)
{
    uint32_t parent = o->slot[i].parent;

    return !parent ||
           (parent <= o->slab.high && o->slot[parent].check && o->slot[parent].client == o->slot[i].client);
}

static void keep_only_whole(struct objects *o)
{
    bool again = true;

    slab_recover(&o->slab);
    while (again) {
        again = false;
        for (uint32_t i = 1; i <= o->slab.high; i++)
            if (o->slot[i].check && !has_parent(o, i)) {
                slab_put(&o->slab, i);
                again = true;
            }
    }
}

/* Names of the same memory find each other, and the first of them carries the charge. */
static int recover_aliases(struct objects *o)
{
    uint32_t *first = reserve(BUCKET_BYTES), *at;

    if (!first)
        return -ENOMEM;
    for (uint32_t i = 1; i <= o->slab.high; i++) {
        uint64_t memory = o->slot[i].memory;

        if (!o->slot[i].check || !memory)
            continue;
        if (memory > o->last_memory)
            o->last_memory = memory;
        for (at = &first[memory % OBJECTS_BUCKETS]; *at && o->slot[*at].memory != memory;)
            at = at == &first[OBJECTS_BUCKETS - 1] ? first : at + 1;
        if (*at) {
            link_alias(o, *at, i);
            o->slot[i].bytes = 0;
        } else {
            *at = i;
        }
    }
    munmap(first, BUCKET_BYTES);
    return 0;
}

int objects_recover(struct objects *o)
{
    o->slot[0] = (struct rm_object){0};
    keep_only_whole(o);
    for (uint32_t i = 1; i <= o->slab.high; i++) {
        struct rm_object *obj = &o->slot[i];

        obj->first_child = obj->alias_next = obj->alias_prev = 0;
        obj->bytes = obj->memory_bytes;
    }
    for (uint32_t i = 1; i <= o->slab.high; i++)
        if (o->slot[i].check) {
            link_child(o, o->slot[i].parent, i);
            hash_in(o, i);
            count_in(o, &o->slot[i]);
            o->live++;
        }
    return recover_aliases(o);
}
