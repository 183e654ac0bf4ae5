/* What must hold between two calls, whatever they were. */
#include "../../native_sched/nvidia/account/exported.h"
#include "world.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void broken(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fputs("broken: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

static const struct tenant *tenant_of(uint64_t file)
{
    for (int t = 0; t < TENANTS; t++)
        for (int i = 0; i < TENANT_FILES; i++)
            if (world.open[t][i] == file)
                return &world.tenant[t];
    broken("the driver has objects of file %llu, which is closed", (unsigned long long)file);
}

static void check_tree(const struct tenant *t)
{
    const struct objects *o = &t->objects;
    uint64_t used[MAX_CARDS] = {0};
    uint32_t seen = 0;

    for (uint32_t root = o->slot[0].first_child; root; root = o->slot[root].next_sibling) {
        for (uint32_t i = root; i; i = objects_next(o, root, i)) {
            const struct rm_object *obj = &o->slot[i];
            uint32_t before = obj->prev_sibling;

            if (++seen > o->live)
                broken("the tree has more objects than live ones");
            if (obj->client && objects_find(o, obj->client, obj->handle) != i)
                broken("object %x:%x is not found by its name", obj->client, obj->handle);
            if (before ? o->slot[before].next_sibling != i : o->slot[obj->parent].first_child != i)
                broken("object %x:%x hangs in no list", obj->client, obj->handle);
            if (objects_root(o, i) != root)
                broken("object %x:%x has another root", obj->client, obj->handle);
            if (obj->bytes && obj->card >= MAX_CARDS)
                broken("object %x:%x is charged on no card", obj->client, obj->handle);
            if (obj->bytes)
                used[obj->card] += obj->bytes;
        }
    }
    if (seen != o->live)
        broken("%u objects live, %u in the tree", o->live, seen);
    for (int card = 0; card < MAX_CARDS; card++) {
        const struct ledger *l = &t->ledger[card];

        if (l->reserved_bytes)
            broken("%llu bytes reserved between calls", (unsigned long long)l->reserved_bytes);
        if (l->used_bytes > l->cap_bytes || l->peak_bytes > l->cap_bytes)
            broken("above the cap: %llu of %llu", (unsigned long long)l->used_bytes,
                   (unsigned long long)l->cap_bytes);
        if (l->used_bytes != used[card])
            broken("%llu charged, objects have %llu", (unsigned long long)l->used_bytes,
                   (unsigned long long)used[card]);
    }
}

/* The model carries out all that it is asked of the mediator's own accord: between two calls it has been
 * asked. */
static void check_channel(const struct groups *g, const struct node *n)
{
    const struct node *above = &world.node[n->parent];
    bool runs = above->scheduled && !n->disabled;

    for (uint32_t i = 0; i < g->groups; i++) {
        const struct group *group = &g->group[i];

        if (!group->live || group->name.client != above->client || group->name.handle != above->handle)
            continue;
        if (runs != (g->running && group->wanted))
            broken("%x:%x %s, its group is %s and its tenant %s", n->client, n->handle,
                   runs ? "runs" : "is off", group->wanted ? "wanted" : "unwanted",
                   g->running ? "enabled" : "suspended");
        return;
    }
    broken("%x:%x is of a group that the scheduler does not know", n->client, n->handle);
}

static bool keeps_memory(const struct export_file *f)
{
    for (uint32_t place = 0; place < EXPORT_PLACES; place++)
        if (f->at[place].live)
            return true;
    return false;
}

/* What files keep in the driver they keep in the account, at the same places. A file that exports nothing
 * keeps nothing: RM is told of a file before its first memory is booked, and may refuse that memory. */
static void check_exports(const struct tenant *t)
{
    const struct objects *o = &t->objects;
    uint32_t kept = 0;

    for (int i = 0; i < EXPORT_FILES; i++) {
        const struct export_file *f = &world.exports[i];
        uint32_t root = f->file && tenant_of(f->file) == t ? exported_root(o, f->file) : 0;

        if (f->file && tenant_of(f->file) == t && !root && keeps_memory(f))
            broken("file %llu exports, the books do not know", (unsigned long long)f->file);
        kept += root != 0;
        for (uint32_t place = 0; root && place < EXPORT_PLACES; place++) {
            uint32_t slot = exported_at(o, root, place);

            if (!slot != !f->at[place].live)
                broken("place %u of file %llu is not what the books say", place, (unsigned long long)f->file);
            if (slot && f->at[place].bytes > o->slot[slot].memory_bytes)
                broken("place %u has more than it is charged", place);
            kept += slot != 0;
        }
    }
    if (kept != o->anonymous)
        broken("files keep %u names, the books %u", kept, o->anonymous);
}

/* Every memory once, by whatever names it has: at most what is charged. */
static void check_memory(const struct tenant *t, uint32_t whose)
{
    uint64_t seen[NODES + EXPORT_FILES * EXPORT_PLACES], bytes[MAX_CARDS] = {0};
    uint32_t n = 0;

    for (int i = 0; i < NODES + EXPORT_FILES * EXPORT_PLACES; i++) {
        const struct export_file *f = i < NODES ? NULL : &world.exports[(i - NODES) / EXPORT_PLACES];
        const struct node *node = f ? &f->at[(i - NODES) % EXPORT_PLACES] : &world.node[i];
        uint32_t k = 0;

        if (!node->live || tenant_of(f ? f->file : node->file) != &world.tenant[whose] || !node->bytes)
            continue;
        while (node->memory && k < n && seen[k] != node->memory)
            k++;
        if (node->memory && k < n)
            continue;
        if (node->memory)
            seen[n++] = node->memory;
        bytes[node->card] += node->bytes;
    }
    for (int card = 0; card < CARDS; card++)
        if (bytes[card] > t->ledger[card].used_bytes)
            broken("the driver has %llu for the tenant, charged are %llu", (unsigned long long)bytes[card],
                   (unsigned long long)t->ledger[card].used_bytes);
}

/* Every object that the driver has is one that was booked, of its file and for at least as much. */
static void check_driver(void)
{
    uint32_t live[TENANTS] = {0}, groups[TENANTS] = {0}, channels[TENANTS] = {0};
    int mapped = 0;

    for (int i = 0; i < NODES; i++) {
        const struct node *n = &world.node[i];
        const struct rm_object *obj;
        const struct tenant *t;
        uint32_t slot;

        if (!n->live)
            continue;
        t = tenant_of(n->file);
        slot = objects_find(&t->objects, n->client, n->handle);
        if (!slot)
            broken("the driver has %x:%x of class %x, the books do not", n->client, n->handle, n->class_id);
        obj = &t->objects.slot[slot];
        if (n->bytes > obj->memory_bytes || (n->bytes && n->card != obj->card))
            broken("%x:%x takes %llu and is charged %llu", n->client, n->handle, (unsigned long long)n->bytes,
                   (unsigned long long)obj->memory_bytes);
        if (n->card != OBJECT_NO_CARD && !t->granted[n->card])
            broken("%x:%x is on a card that was not granted", n->client, n->handle);
        live[t - world.tenant]++;
        groups[t - world.tenant] += n->class_id == KEPLER_CHANNEL_GROUP_A;
        channels[t - world.tenant] += n->is_channel;
        mapped += n->has_userd;
        if (n->is_channel)
            check_channel(t->groups, n);
    }
    for (int k = 0; k < TENANTS; k++) {
        const struct groups *g = world.tenant[k].groups;
        uint32_t seen_groups = 0, seen_channels = 0;

        for (uint32_t i = 0; i < g->groups; i++)
            seen_groups += g->group[i].live;
        for (uint32_t i = 0; i < g->channels; i++)
            seen_channels += g->channel[i].live;
        for (uint32_t i = 0; i < g->channels; i++)
            mapped -= g->channel[i].live && g->channel[i].blind;
        if (live[k] != world.tenant[k].objects.live - world.tenant[k].objects.anonymous)
            broken("%u objects in the books, %u of them nobody's, %u in the driver",
                   world.tenant[k].objects.live, world.tenant[k].objects.anonymous, live[k]);
        check_exports(&world.tenant[k]);
        check_memory(&world.tenant[k], (uint32_t)k);
        if (groups[k] != seen_groups || channels[k] != seen_channels)
            broken("the scheduler knows %u groups and %u channels, the driver %u and %u", seen_groups,
                   seen_channels, groups[k], channels[k]);
    }
    if (mapped != world.userd_maps)
        broken("%d channels with USERD that was not refused, %d mappings of it", mapped, world.userd_maps);
}

void check_books(void)
{
    for (int k = 0; k < TENANTS; k++)
        check_tree(&world.tenant[k]);
    check_driver();
}
