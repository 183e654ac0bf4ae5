#include "groups.h"
#include "base/reserve.h"
#include "groups_private.h"
#include "native_sched/nvidia/rm/channel.h"
#include <errno.h>
#include <sys/eventfd.h>

/* As many as a tenant may have, of which most have few. */
struct tables {
    struct group group[GROUPS_MAX];
    struct channel channel[CHANNELS_MAX];
    struct bulk bulk[GROUPS_MAX];
};

int groups_init(struct groups *g, const struct driver_ops *ops, struct driver *driver,
                struct refusals *refusals, struct ids *ids, int kick)
{
    struct tables *tables = reserve(sizeof(*tables));

    if (!tables)
        return -ENOMEM;
    *g = (struct groups){
        .kick = kick,
        .refusals = refusals,
        .ids = ids,
        .ops = ops,
        .driver = driver,
        .group = tables->group,
        .channel = tables->channel,
        .bulk = tables->bulk,
    };
    mutex_init_inheriting(&g->lock);
    return 0;
}

static void end_channel(struct groups *g, struct channel *c)
{
    if (c->userd.at)
        g->ops->userd_unmap(&c->userd);
    g->live_channels[c->card] -= c->userd.at || c->blind;
    atomic_fetch_sub(&g->ids->channels[c->card], 1);
    c->live = false;
}

static void note_video(struct groups *g, uint32_t card)
{
    uint64_t engines = 0;

    for (const struct group *at = g->group; at < g->group + g->groups; at++)
        if (at->live && at->card == card)
            engines |= engine_bit(at->engine_type) & RM_VIDEO_ENGINES;
    __atomic_store_n(&g->video[card], engines, __ATOMIC_RELAXED);
}

static void end_group(struct groups *g, struct group *group)
{
    group->live = false;
    note_video(g, group->card);
    g->bulk[group->bulk].groups--;
    atomic_fetch_sub(&g->ids->groups[group->card], 1);
}

void groups_destroy(struct groups *g)
{
    for (uint32_t i = 0; i < g->channels; i++)
        if (g->channel[i].live)
            end_channel(g, &g->channel[i]);
    for (uint32_t i = 0; i < g->groups; i++)
        if (g->group[i].live)
            end_group(g, &g->group[i]);
    munmap(g->group, sizeof(struct tables));
    pthread_mutex_destroy(&g->lock);
}

/* There is room for as many as there are groups. */
static uint32_t join_bulk(struct groups *g, uint32_t client, uint32_t card, uint32_t subdevice)
{
    uint32_t unused = g->bulks, i;

    for (i = 0; i < g->bulks; i++) {
        const struct bulk *b = &g->bulk[i];

        if (!b->groups)
            unused = i;
        else if (b->client == client && b->card == card && b->subdevice == subdevice)
            break;
    }
    if (i == g->bulks) {
        i = unused;
        g->bulk[i] = (struct bulk){.client = client, .card = card, .subdevice = subdevice};
        if (i == g->bulks)
            g->bulks++;
    }
    g->bulk[i].groups++;
    return i;
}

/* NULL: there are as many as there may be. */
static struct group *place_group(struct groups *g, const struct group *group, uint32_t subdevice)
{
    struct group *at = g->group;

    while (at < g->group + g->groups && at->live)
        at++;
    if (at == g->group + GROUPS_MAX)
        return NULL;
    *at = *group;
    at->bulk = join_bulk(g, group->name.client, group->card, subdevice);
    atomic_fetch_add(&g->ids->groups[group->card], 1);
    if (at == g->group + g->groups)
        g->groups++;
    note_video(g, group->card);
    return at;
}

/* What the tenant has on the card, as a sum of its bulks. */
static struct bulk own_ids(const struct groups *g, uint32_t card)
{
    struct bulk own = {0};

    for (uint32_t i = 0; i < g->bulks; i++)
        if (g->bulk[i].card == card) {
            own.groups += g->bulk[i].groups;
            own.channels += g->bulk[i].channels;
        }
    return own;
}

static int begin_group(struct groups *g, const struct group *group)
{
    suspend_ask(g, group);
    if (suspend_calls(g, group->card) > SUSPEND_CALLS_MAX)
        return -ENOSPC;
    return timeslices_apply(g);
}

int groups_add(struct groups *g, const struct rm_target *name, uint32_t card, uint32_t engine_type,
               uint32_t subdevice)
{
    struct group fresh = {
        .name = *name,
        .card = card,
        .engine_type = engine_type,
        .copies = engine_type >= RM_ENGINE_COPY0,
        .runlist = DRIVEN_OFF,
        .live = true,
    };
    struct group *group;
    int e;
    WITH_GROUPS(g);

    if ((e = group_find_tsg_id(g, &fresh)) < 0)
        return e;
    if (!ids_left(&g->ids->groups[card], own_ids(g, card).groups) ||
        !(group = place_group(g, &fresh, subdevice)))
        return -ENOSPC;
    if ((e = begin_group(g, group)) < 0)
        end_group(g, group);
    return e;
}

int groups_recover(struct groups *g, const struct rm_target *name, const struct rm_object *obj,
                   uint32_t subdevice)
{
    struct group found = {
        .name = *name,
        .card = obj->card,
        .engine_type = obj->engine_type,
        .copies = obj->engine_type >= RM_ENGINE_COPY0,
        .wanted = obj->wanted,
        .timeslice_us = obj->timeslice_us,
        .tsg_id = NO_TSG,
        .ran = true,
        .recovered = true,
        .live = true,
    };
    WITH_GROUPS(g);

    g->recovered = true;
    return place_group(g, &found, subdevice) ? 0 : -ENOSPC;
}

int groups_channel_begins(struct groups *g, uint32_t client, uint32_t handle)
{
    struct group *group;
    int e;
    WITH_GROUPS(g);

    if (!(group = group_find(g, client, handle)))
        return -ESRCH;
    group->making = true;
    if ((e = group_apply(g, group)) < 0)
        group->making = false;
    return e;
}

void groups_channel_ends(struct groups *g, uint32_t client, uint32_t handle)
{
    struct group *group;
    WITH_GROUPS(g);

    if ((group = group_find(g, client, handle)))
        group->making = false;
}

/* NULL and the error: there are as many as there may be, or no such group. */
static struct channel *place_channel(struct groups *g, const struct rm_target *name, uint32_t handle,
                                     enum driven state, int *error)
{
    struct group *group = group_find(g, name->client, handle);
    struct channel *c = g->channel;

    while (c < g->channel + g->channels && c->live)
        c++;
    *error = !group ? -ESRCH : c == g->channel + CHANNELS_MAX ? -ENOSPC : 0;
    if (*error)
        return NULL;
    *c = (struct channel){
        .client = name->client,
        .handle = name->handle,
        .card = group->card,
        .group = (uint32_t)(group - g->group),
        .place = name->userd,
        .state = state,
        .blind = name->userd.memory,
        .live = true,
    };
    g->live_channels[c->card] += c->blind;
    atomic_fetch_add(&g->ids->channels[c->card], 1);
    group->channels[state]++;
    g->bulk[group->bulk].channels++;
    if (c == g->channel + g->channels)
        g->channels++;
    return c;
}

static void forget_channel(struct groups *g, struct channel *c)
{
    struct group *group = &g->group[c->group];

    end_channel(g, c);
    g->bulk[group->bulk].channels--;
    group->channels[c->state]--;
    group->stopped -= c->stopped;
}

int groups_add_channel(struct groups *g, const struct rm_target *name, uint32_t group)
{
    struct channel *c;
    int e;
    WITH_GROUPS(g);

    if (!(c = place_channel(g, name, group, DRIVEN_ON, &e)))
        return e;
    if (suspend_calls(g, c->card) > SUSPEND_CALLS_MAX ||
        !ids_left(&g->ids->channels[c->card], own_ids(g, c->card).channels - 1)) {
        forget_channel(g, c);
        return -ENOSPC;
    }
    if (c->blind)
        channel_map_userd(g, c);
    eventfd_write(g->kick, 1);
    return group_apply(g, &g->group[c->group]); /* it may have been suspended while the channel was made */
}

int groups_recover_channel(struct groups *g, const struct rm_target *name, const struct rm_object *obj,
                           uint32_t group)
{
    struct channel *c;
    int e;
    WITH_GROUPS(g);

    if (!(c = place_channel(g, name, group, DRIVEN_UNKNOWN, &e)))
        return e;
    channel_stop(g, c, obj->stopped);
    c->recovered = c->blind;
    return 0;
}

void groups_forget(struct groups *g, uint32_t client, uint32_t handle)
{
    struct group *group;
    WITH_GROUPS(g);

    group = group_find(g, client, handle);
    for (struct channel *c = g->channel; c < g->channel + g->channels; c++)
        if (c->live && ((c->client == client && c->handle == handle) || &g->group[c->group] == group))
            forget_channel(g, c);
    if (group)
        end_group(g, group);
}
