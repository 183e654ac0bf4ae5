#include "usage.h"
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/boundary/managed/managed.h"

enum { BUCKETS = 2 * USAGE_MAX };

/* Entries by process and card, found by open addressing: a tenant chooses how many processes and clients it
 * has. */
struct index {
    uint16_t entry[BUCKETS]; /* index into out, plus 1; 0: empty */
};

static struct process_use *entry_of(struct index *x, struct process_use *out, uint32_t *n, uint32_t max,
                                    const struct process_id *who, uint32_t card)
{
    uint32_t at = (((uint32_t)who->tgid * 31 + card) * 0x9e3779b9u >> 16) % BUCKETS;

    for (; x->entry[at]; at = (at + 1) % BUCKETS) {
        struct process_use *u = &out[x->entry[at] - 1];

        if (u->who.tgid == who->tgid && u->card == card)
            return u;
    }
    if (*n == max)
        return NULL;
    out[*n] = (struct process_use){.who = *who, .card = card};
    x->entry[at] = (uint16_t)++ * n;
    return &out[*n - 1];
}

uint32_t usage_by_process(const struct tenant *t, struct process_use *out, uint32_t max)
{
    const struct objects *o = &t->objects;
    const struct external *x = t->external;
    const struct managed *g = t->managed;
    struct index index = {{0}};
    uint32_t n = 0;

    assert_held(&t->lock);
    if (max > USAGE_MAX)
        max = USAGE_MAX;
    for (uint32_t root = o->slot[0].first_child; root; root = o->slot[root].next_sibling) {
        /* What files alone have is no process's. */
        for (uint32_t i = o->slot[root].client ? root : 0; i; i = objects_next(o, root, i)) {
            const struct rm_object *obj = &o->slot[i];
            struct process_use *u;

            if (obj->card == OBJECT_NO_CARD || (!obj->bytes && rm_kind_of(obj->class_id) != RM_KIND_GROUP))
                continue;
            u = entry_of(&index, out, &n, max, &o->slot[root].owner, obj->card);
            if (u)
                u->bytes += obj->bytes;
        }
    }
    for (uint32_t i = 1; x && i <= x->slab.high; i++) {
        const struct external_map *map = &x->map[i];
        struct process_use *u = map->hold_bytes ? entry_of(&index, out, &n, max, &map->owner, map->card)
                                                : NULL;

        if (u)
            u->bytes += map->hold_bytes;
    }
    for (uint32_t i = 0; g && g->page && i < MANAGED_SPACES; i++)
        for (uint32_t card = 0; card < MAX_CARDS; card++) {
            const struct managed_space *s = &g->page->address_space[i];
            struct process_use *u = s->check && s->bytes && t->granted[card]
                                        ? entry_of(&index, out, &n, max, &s->who, card)
                                        : NULL;

            if (u)
                u->bytes += s->bytes;
        }
    return n;
}
