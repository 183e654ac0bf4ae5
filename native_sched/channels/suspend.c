/* What runs and what is suspended, in the driver.
 *
 * A group is off when all of its channels are disabled, or when it is not on its runlist. Of the first RM promises that none
 * of them is running when the call returns, and it is one call for all groups of a client, so that is how a tenant is suspended
 * where the driver can. Of the second it promises less, and refuses it for a whole group while one of its channels for graphics
 * or compute is not registered with nvidia-uvm (kchannelIsSchedulable_IMPL() in kernel_channel.c). A channel that is being
 * made cannot be named yet: its group is taken off its runlist. Whoever resumes undoes what was done, whichever it was. */
#include "../driver/channel_control.h"
#include "../driver/group_control.h"
#include "groups_private.h"
#include <errno.h>

enum need { NEED_NOTHING, NEED_ENABLE, NEED_DISABLE, NEED_SCHEDULE, NEED_UNSCHEDULE };

static bool let_run(const struct groups *g)
{
    return g->running && !g->paused;
}

static bool in_bulk(const struct groups *g, const struct bulk *b)
{
    return b->subdevice && !refusals_any(g->refusals, b->card, MGPU_WITHOUT_DISABLE_CHANNELS);
}

static bool is_unsupported(int e)
{
    return rm_refused(e) == NV_ERR_NOT_SUPPORTED;
}

/* With no channel: a driver that has the call may say what it likes of that. */
void suspend_ask(struct groups *g, const struct group *group)
{
    uint32_t subdevice = g->bulk[group->bulk].subdevice;
    int e;

    if (!subdevice || atomic_exchange(&g->refusals->asked[group->card], true))
        return;
    e = channels_disable(g->ops, g->driver, &group->name, subdevice, NULL, 0, false);
    if (is_unsupported(e))
        refusals_note(g->refusals, group->card, MGPU_WITHOUT_DISABLE_CHANNELS, e);
}

/* Is there a channel in another state? */
static bool channels_but(const struct group *group, enum driven state)
{
    for (int i = 0; i < DRIVEN_STATES; i++)
        if (i != (int)state && group->channels[i])
            return true;
    return false;
}

/* A tenant that has stopped every channel of a group wants nothing of it. */
static bool wants(const struct group *group)
{
    uint32_t channels = 0;

    for (int i = 0; i < DRIVEN_STATES; i++)
        channels += group->channels[i];
    return group->wanted && !(group->stopped && group->stopped == channels);
}

/* The next call that brings the group to what is wanted of it. */
static enum need need_of(const struct groups *g, const struct group *group)
{
    bool bulk;

    if (!group->live)
        return NEED_NOTHING;
    bulk = in_bulk(g, &g->bulk[group->bulk]);
    if (let_run(g) && wants(group)) {
        if ((bulk && channels_but(group, DRIVEN_ON)) || group->channels[DRIVEN_OFF])
            return NEED_ENABLE;
        return group->runlist == DRIVEN_ON ? NEED_NOTHING : NEED_SCHEDULE;
    }
    if (group->runlist == DRIVEN_OFF)
        return NEED_NOTHING;
    if (let_run(g) || group->making || g->unsure || !bulk)
        return NEED_UNSCHEDULE;
    return channels_but(group, DRIVEN_OFF) ? NEED_DISABLE : NEED_NOTHING;
}

/* On a card that is lost nothing runs any more, nor ever will. */
static bool is_gone(int e, bool enable)
{
    return e == -ESRCH || (!enable && rm_refused(e) == NV_ERR_GPU_IS_LOST);
}

static int schedule(struct groups *g, struct group *group, bool enable)
{
    int e = group_schedule(g->ops, g->driver, &group->name, enable);

    if (e < 0 && !is_gone(e, enable))
        return e;
    group->runlist = enable
                         ? DRIVEN_ON
                         : DRIVEN_OFF; /* of one that is gone nothing more is wanted: it will be forgotten */
    return 0;
}

/* Channels of this group and of others of its bulk that need the same. */
struct batch {
    struct channel *channel[RM_MAX_DISABLE];
    uint32_t handle[RM_MAX_DISABLE], n;
};

static enum driven state_by(enum need need)
{
    return need == NEED_DISABLE ? DRIVEN_OFF : DRIVEN_ON;
}

static void gather(struct groups *g, uint32_t bulk, enum need need, struct batch *b)
{
    b->n = 0;
    for (uint32_t i = 0; i < g->channels && b->n < RM_MAX_DISABLE; i++) {
        struct channel *c = &g->channel[i];

        if (!c->live || g->group[c->group].bulk != bulk || c->state == state_by(need) ||
            need_of(g, &g->group[c->group]) != need)
            continue;
        b->channel[b->n] = c;
        b->handle[b->n++] = c->handle;
    }
}

static int disable(struct groups *g, const struct group *group, enum need need)
{
    const struct bulk *bulk = &g->bulk[group->bulk];
    struct batch b;
    int e;

    gather(g, group->bulk, need, &b);
    e = channels_disable(g->ops, g->driver, &group->name, bulk->subdevice, b.handle, b.n,
                         need == NEED_DISABLE);
    /* From now on by the other means: all are as they were. */
    if (is_unsupported(e) && in_bulk(g, bulk)) {
        refusals_note(g->refusals, bulk->card, MGPU_WITHOUT_DISABLE_CHANNELS, e);
        return 0;
    }
    for (uint32_t i = 0; i < b.n; i++) {
        struct group *of = &g->group[b.channel[i]->group];

        if (e < 0 && !is_gone(e, need == NEED_ENABLE)) {
            of->failed = g->pass;
            continue;
        }
        of->channels[b.channel[i]->state]--;
        b.channel[i]->state = state_by(need);
        of->channels[b.channel[i]->state]++;
    }
    return is_gone(e, need == NEED_ENABLE) ? 0 : e;
}

static int act(struct groups *g, struct group *group, enum need need)
{
    int e;

    if (need == NEED_ENABLE || need == NEED_DISABLE)
        e = disable(g, group, need);
    else if ((e = schedule(g, group, need == NEED_SCHEDULE)) < 0)
        group->failed = g->pass;
    if (e < 0 && (need == NEED_DISABLE || need == NEED_UNSCHEDULE))
        g->suspend_status = rm_refused(e);
    return rm_errno(e);
}

int group_settle(struct groups *g, struct group *group)
{
    enum need need;
    int e = 0;

    while (e == 0 && (need = need_of(g, group)) != NEED_NOTHING)
        e = act(g, group, need);
    return e;
}

static void begin_pass(struct groups *g)
{
    g->pass++;
    g->error = 0;
}

static int step(struct groups *g)
{
    for (uint32_t i = 0; i < g->groups; i++) {
        struct group *group = &g->group[i];
        enum need need = need_of(g, group);
        int e;

        if (need == NEED_NOTHING)
            continue;
        if (group->failed == g->pass) {
            g->error = g->error ? g->error : -EIO; /* failed under a call of the tenant's own */
            continue;
        }
        if ((e = act(g, group, need)) < 0)
            g->error = e;
        return 1;
    }
    return g->error;
}

static int settle_all(struct groups *g)
{
    int e;

    begin_pass(g);
    while ((e = step(g)) > 0)
        ;
    return e;
}

static int begin_run(struct groups *g, bool run)
{
    g->running = run;
    return run ? timeslices_settle(g) : 0; /* a group may have become the only one */
}

int groups_run(struct groups *g, bool run)
{
    int error, e;
    WITH_GROUPS(g);

    error = begin_run(g, run);
    e = settle_all(g);
    return e < 0 ? e : error;
}

void groups_run_begin(struct groups *g, bool run)
{
    int error;
    WITH_GROUPS(g);

    error = begin_run(g, run);
    begin_pass(g);
    g->error = error;
}

int groups_run_step(struct groups *g)
{
    WITH_GROUPS(g);

    return step(g);
}

/* Without the lock, which the scheduler holds through a call to the driver, however long that takes. */
uint32_t groups_suspend_status(const struct groups *g)
{
    return atomic_load(&g->suspend_status);
}

int groups_pause(struct groups *g, bool paused)
{
    WITH_GROUPS(g);

    g->paused = paused;
    return settle_all(g);
}

int groups_want(struct groups *g, uint32_t client, uint32_t handle, bool wanted)
{
    struct group *group;
    WITH_GROUPS(g);

    if (!(group = group_find(g, client, handle)))
        return -ESRCH;
    group->wanted = wanted;
    return group_settle(g, group);
}

int groups_unsure(struct groups *g, bool unsure)
{
    WITH_GROUPS(g);

    g->unsure = unsure;
    return unsure ? settle_all(g) : 0;
}

static struct channel *channel_find(struct groups *g, uint32_t client, uint32_t handle)
{
    for (struct channel *c = g->channel; c < g->channel + g->channels; c++)
        if (c->live && c->client == client && c->handle == handle)
            return c;
    return NULL;
}

int groups_stop(struct groups *g, const uint32_t *client, const uint32_t *channel, uint32_t channels,
                bool stop)
{
    int error = 0, e;
    WITH_GROUPS(g);

    for (uint32_t i = 0; i < channels; i++)
        if (!channel_find(g, client[i], channel[i]))
            return -ESRCH;
    for (uint32_t i = 0; i < channels; i++)
        channel_stop(g, channel_find(g, client[i], channel[i]), stop);
    for (uint32_t i = 0; i < channels; i++)
        if ((e = group_settle(g, &g->group[channel_find(g, client[i], channel[i])->group])) < 0)
            error = e;
    return error;
}

bool groups_need(struct groups *g, uint32_t client, uint32_t subdevice)
{
    WITH_GROUPS(g);

    for (uint32_t i = 0; i < g->bulks; i++) {
        const struct bulk *b = &g->bulk[i];

        if (b->groups && b->client == client && b->subdevice == subdevice && in_bulk(g, b))
            return true;
    }
    return false;
}

uint32_t suspend_calls(const struct groups *g, uint32_t card)
{
    uint32_t calls = 0;

    for (uint32_t i = 0; i < g->bulks; i++) {
        const struct bulk *b = &g->bulk[i];

        if (!b->groups || b->card != card)
            continue;
        if (in_bulk(g, b))
            calls += b->channels ? (b->channels + RM_MAX_DISABLE - 1) / RM_MAX_DISABLE : 1;
        else
            calls += b->groups;
    }
    return calls;
}
