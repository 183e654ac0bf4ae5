#include "external.h"
#include "base/reserve.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Mappings that begin below a range that is unmapped and may reach into it: so many are looked at. One that
 * is missed keeps counting. */
enum { LOOKED_AT_BEFORE = 64 };

static const struct slab_layout slots = {
    .record_bytes = sizeof(struct external_map),
    .slots = EXTERNAL_MAX,
    .check_at = offsetof(struct external_map, check),
    .from = offsetof(struct external_map, card),
    .to = offsetof(struct external_map, hold_bytes),
    .next_at = offsetof(struct external_map, memory_next),
};

static uint32_t *bucket_of(const struct external *x, uint64_t memory)
{
    return &x->bucket[memory % EXTERNAL_BUCKETS];
}

/* The tenant must not choose the priorities, or it would turn the tree into a list. */
static uint32_t priority(const struct external *x, uint32_t slot)
{
    return (slot * x->factor) ^ (slot * x->factor) >> 15;
}

static bool less(const struct external *x, uint32_t slot, uint64_t file, uint64_t base, uint32_t than)
{
    const struct external_map *m = &x->map[slot];

    if (m->file != file)
        return m->file < file;
    return m->base != base ? m->base < base : slot < than;
}

/* Splits the tree into the mappings before the key and the others. */
static void split(struct external *x, uint32_t top, const struct external_map *key, uint32_t slot,
                  uint32_t *low, uint32_t *high)
{
    if (!top) {
        *low = *high = 0;
    } else if (less(x, top, key->file, key->base, slot)) {
        *low = top;
        split(x, x->map[top].right, key, slot, &x->map[top].right, high);
    } else {
        *high = top;
        split(x, x->map[top].left, key, slot, low, &x->map[top].left);
    }
}

static uint32_t merge(struct external *x, uint32_t low, uint32_t high)
{
    if (!low || !high)
        return low ? low : high;
    if (priority(x, low) < priority(x, high)) {
        x->map[low].right = merge(x, x->map[low].right, high);
        return low;
    }
    x->map[high].left = merge(x, low, x->map[high].left);
    return high;
}

static void order_in(struct external *x, uint32_t slot)
{
    uint32_t low, high;

    x->map[slot].left = x->map[slot].right = 0;
    split(x, x->root, &x->map[slot], slot, &low, &high);
    x->root = merge(x, merge(x, low, slot), high);
}

static void order_out(struct external *x, uint32_t slot)
{
    const struct external_map *m = &x->map[slot];
    uint32_t *at = &x->root;

    while (*at && *at != slot)
        at = less(x, *at, m->file, m->base, slot) ? &x->map[*at].right : &x->map[*at].left;
    if (*at)
        *at = merge(x, m->left, m->right);
}

/* The first that is not before the key. */
static uint32_t at_or_after(const struct external *x, uint64_t file, uint64_t base, uint32_t slot)
{
    uint32_t found = 0;

    for (uint32_t i = x->root; i;)
        if (less(x, i, file, base, slot)) {
            i = x->map[i].right;
        } else {
            found = i;
            i = x->map[i].left;
        }
    return found;
}

static uint32_t last_before(const struct external *x, uint64_t file, uint64_t base, uint32_t slot)
{
    uint32_t found = 0;

    for (uint32_t i = x->root; i;)
        if (less(x, i, file, base, slot)) {
            found = i;
            i = x->map[i].right;
        } else {
            i = x->map[i].left;
        }
    return found;
}

static uint32_t of_file(const struct external *x, uint32_t slot, uint64_t file)
{
    return slot && x->map[slot].file == file ? slot : 0;
}

uint32_t external_from(const struct external *x, uint64_t file, uint64_t base)
{
    return x ? of_file(x, at_or_after(x, file, base, 0), file) : 0;
}

/* The next mapping of the same file. */
static uint32_t next_of(const struct external *x, uint32_t slot)
{
    const struct external_map *m = &x->map[slot];

    return of_file(x, at_or_after(x, m->file, m->base, slot + 1), m->file);
}

static void link_in(struct external *x, uint32_t slot)
{
    uint32_t *head = bucket_of(x, x->map[slot].memory);

    x->map[slot].memory_next = *head;
    x->map[slot].memory_prev = 0;
    if (*head)
        x->map[*head].memory_prev = slot;
    *head = slot;
    x->map[slot].hold_bytes = 0;
    order_in(x, slot);
    x->live++;
}

/* Another mapping of the same memory. */
static uint32_t sibling(const struct external *x, uint64_t memory, uint32_t but)
{
    uint32_t i = *bucket_of(x, memory);

    while (i && (x->map[i].memory != memory || i == but))
        i = x->map[i].memory_next;
    return i;
}

static uint64_t tables_bytes(const struct external_map *m)
{
    return page_tables_bytes(m->base, m->end, m->page_shift);
}

static struct ledger *tables_ledger(const struct external *x, const struct external_map *m)
{
    return &x->ledger[external_mapper(m)];
}

enum { BUCKET_BYTES = EXTERNAL_BUCKETS * sizeof(uint32_t) };

static void release(struct external *x)
{
    if (x->bucket)
        munmap(x->bucket, BUCKET_BYTES);
    free(x);
}

static int allocate(struct external **out)
{
    struct external *x = calloc(1, sizeof(*x));

    if (!x)
        return -ENOMEM;
    x->bucket = reserve(BUCKET_BYTES);
    if (!x->bucket || getrandom(&x->factor, sizeof(x->factor), 0) < 0) {
        release(x);
        return -ENOMEM;
    }
    x->factor |= 1;
    *out = x;
    return 0;
}

/* Every record that is whole is linked; its memory's number is given to nothing else. */
static void take_over(struct external *x, struct objects *o)
{
    slab_recover(&x->slab);
    for (uint32_t i = 1; i <= x->slab.high; i++) {
        const struct external_map *m = &x->map[i];

        if (m->check && (m->card >= MAX_CARDS || m->mapper > MAX_CARDS))
            slab_put(&x->slab, i);
        if (!m->check)
            continue;
        link_in(x, i);
        if (m->memory > o->last_memory)
            o->last_memory = m->memory;
    }
}

void external_name(uint64_t tenant, char name[STORE_NAME_MAX])
{
    snprintf(name, STORE_NAME_MAX, "external-%llu", (unsigned long long)tenant);
}

int external_open(struct tenant *t, int folder)
{
    static const struct store_layout layout = {
        .kind = STORE_EXTERNAL,
        .record_bytes = sizeof(struct external_map),
        .max_bytes = (EXTERNAL_MAX + 1) * sizeof(struct external_map),
    };
    struct external *x;
    char name[STORE_NAME_MAX];
    int e = allocate(&x);

    if (e < 0)
        return e;
    external_name(t->id, name);
    if ((e = store_open(&x->store, folder, name, &layout)) < 0) {
        release(x);
        return e;
    }
    x->map = (struct external_map *)(void *)x->store.at;
    x->slab = (struct slab){.layout = &slots, .store = &x->store, .at = x->store.at};
    x->ledger = t->ledger;
    x->charges = !x->store.found;
    if (x->store.found)
        take_over(x, &t->objects);
    t->external = x;
    return 0;
}

void external_close(struct external *x)
{
    if (!x)
        return;
    store_close(&x->store);
    release(x);
}

void external_remove(struct external *x)
{
    if (x)
        store_remove(&x->store);
}

static void hold(struct external *x, uint32_t slot, uint64_t bytes)
{
    x->map[slot].hold_bytes = bytes;
}

void external_recover(struct tenant *t)
{
    struct external *x = t->external;
    const struct objects *o = &t->objects;

    x->charges = true;
    for (uint32_t i = 1; i <= x->slab.high; i++) {
        struct external_map *m = &x->map[i];

        if (!m->check)
            continue;
        ledger_charge(tables_ledger(x, m), tables_bytes(m));
        m->hold_bytes = m->bytes;
    }
    for (uint32_t i = objects_next(o, 0, 0); i; i = objects_next(o, 0, i))
        for (uint32_t k = o->slot[i].memory ? *bucket_of(x, o->slot[i].memory) : 0; k;
             k = x->map[k].memory_next)
            if (x->map[k].memory == o->slot[i].memory)
                x->map[k].hold_bytes = 0;
    for (uint32_t i = 1; i <= x->slab.high; i++) {
        struct external_map *m = &x->map[i];

        if (!m->check || !m->hold_bytes)
            continue;
        for (uint32_t k = *bucket_of(x, m->memory); k; k = x->map[k].memory_next)
            if (k != i && x->map[k].memory == m->memory)
                x->map[k].hold_bytes = 0;
        hold(x, i, m->bytes);
        ledger_charge(&x->ledger[m->card], m->bytes);
    }
}

static uint32_t same(const struct external *x, const struct external_map *what)
{
    uint32_t i = external_from(x, what->file, what->base);

    for (; i && x->map[i].base == what->base; i = next_of(x, i)) {
        const struct external_map *m = &x->map[i];

        if (m->memory == what->memory && m->end == what->end && m->page_shift == what->page_shift &&
            !memcmp(m->gpu, what->gpu, sizeof(m->gpu)))
            return i;
    }
    return 0;
}

static int64_t add(struct external *x, const struct external_map *what)
{
    int64_t slot = same(x, what);

    if (slot)
        return slot;
    if ((slot = slab_take(&x->slab)) < 0)
        return -ENOSPC;
    if (x->charges)
        ledger_charge(tables_ledger(x, what), tables_bytes(what));
    x->map[slot] = *what;
    x->map[slot].check = 0;
    link_in(x, (uint32_t)slot);
    slab_commit(&x->slab, (uint32_t)slot);
    return slot;
}

int64_t external_add(struct external *x, const struct external_map *what, bool *known)
{
    uint64_t bytes;

    *known = x && same(x, what);
    if (!x)
        return -ENOSPC;
    bytes = *known ? 0 : tables_bytes(what);
    if (ledger_reserve(tables_ledger(x, what), bytes) < 0)
        return -ENOMEM;
    ledger_commit(tables_ledger(x, what), bytes, 0);
    return add(x, what);
}

void external_drop(struct external *x, uint32_t slot)
{
    struct external_map *m = &x->map[slot];
    uint32_t successor = sibling(x, m->memory, slot);

    slab_retract(&x->slab, slot);
    if (m->hold_bytes && successor) {
        x->map[successor].hold_bytes = m->hold_bytes;
    } else if (m->hold_bytes) {
        ledger_release(&x->ledger[m->card], m->hold_bytes);
    }
    if (x->charges)
        ledger_release(tables_ledger(x, m), tables_bytes(m));
    order_out(x, slot);
    if (m->memory_prev)
        x->map[m->memory_prev].memory_next = m->memory_next;
    else
        *bucket_of(x, m->memory) = m->memory_next;
    if (m->memory_next)
        x->map[m->memory_next].memory_prev = m->memory_prev;
    x->live--;
    slab_put(&x->slab, slot);
}

bool external_holds(struct external *x, const struct rm_object *obj)
{
    uint32_t slot = x && obj->memory && obj->bytes ? sibling(x, obj->memory, 0) : 0;

    if (slot)
        hold(x, slot, obj->bytes);
    return slot;
}

/* Makes mappings of their own from the parts below and above the range, before the whole one ends. The two
 * may share one table of each level and are charged for both: without room or slots for that, the mapping
 * stays charged as a whole. */
static void cut(struct external *x, uint32_t slot, uint64_t base, uint64_t end)
{
    const struct external_map whole = x->map[slot];
    const struct ledger *l = tables_ledger(x, &whole);
    struct external_map low = whole, high = whole;
    int64_t low_slot = 0, high_slot = 0;

    low.end = base;
    high.base = end;
    if (whole.base < base)
        low_slot = add(x, &low);
    if (whole.end > end)
        high_slot = add(x, &high);
    if (low_slot >= 0 && high_slot >= 0 &&
        l->used_bytes + l->reserved_bytes <= l->cap_bytes + tables_bytes(&whole)) {
        external_drop(x, slot);
        return;
    }
    if (low_slot > 0)
        external_drop(x, (uint32_t)low_slot);
    if (high_slot > 0)
        external_drop(x, (uint32_t)high_slot);
}

static bool overlaps(const struct external_map *m, uint64_t base, uint64_t end, const uint8_t *gpu)
{
    return m->base < end && m->end > base && !memcmp(m->gpu, gpu, sizeof(m->gpu));
}

void external_unmapped(struct external *x, uint64_t file, uint64_t base, uint64_t end, const uint8_t *gpu,
                       uint32_t but)
{
    uint32_t i = external_from(x, file, base), next;

    for (; i && x->map[i].base < end; i = next) {
        struct external_map was = x->map[i];

        next = next_of(x, i);
        if (i != but && overlaps(&was, base, end, gpu))
            cut(x, i, base, end);
    }
    i = x ? last_before(x, file, base, 0) : 0;
    for (int n = 0; (i = of_file(x, i, file)) && n < LOOKED_AT_BEFORE; n++, i = next) {
        struct external_map was = x->map[i];

        next = last_before(x, file, was.base, i);
        if (i != but && overlaps(&was, base, end, gpu))
            cut(x, i, base, end);
    }
}

void external_drop_file(struct external *x, uint64_t file)
{
    uint32_t i;

    while ((i = external_from(x, file, 0)))
        external_drop(x, i);
}
