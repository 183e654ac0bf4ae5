/* How groups are suspended and resumed in the driver.
 *
 * A group is off when all of its channels are disabled: RM promises that none of them is running when the
 * call returns, and one call does it for all groups of a client. Taking a group off its runlist stops nothing
 * that runs (seen on an H200), and RM refuses it for a whole group while one of its channels for graphics or
 * compute is not registered with nvidia-uvm (kchannelIsSchedulable_IMPL() in kernel_channel.c). It is for
 * what has no name yet, a channel that is being made, beside the others, and for a driver that disables no
 * channels. A resume undoes either. */
#include "channel_control.h"
#include "group_control.h"
#include "groups.h"
#include "groups_private.h"
#include <errno.h>

enum need { NEED_NOTHING, NEED_ENABLE, NEED_DISABLE, NEED_SCHEDULE, NEED_UNSCHEDULE };

static bool may_run(const struct groups *g)
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

/* Names no channels: any answer but NOT_SUPPORTED means that the driver knows the call. */
void suspend_ask(struct groups *g, const struct group *group)
{
    uint32_t subdevice = g->bulk[group->bulk].subdevice;
    int e;

    assert_held(&g->lock);
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

/* A group whose tenant has stopped all of its channels is not to run. */
static bool wants(const struct group *group)
{
    uint32_t channels = 0;

    for (int i = 0; i < DRIVEN_STATES; i++)
        channels += group->channels[i];
    return group->wanted && !(group->stopped && group->stopped == channels);
}

/* Taken off its runlist it may run on. */
static bool has_run(const struct group *group)
{
    return group->ran || group->runlist != DRIVEN_OFF;
}

/* The next call on the way to what tenant and scheduler want of the group. */
static enum need need_of(const struct groups *g, const struct group *group)
{
    bool bulk;

    if (!group->live)
        return NEED_NOTHING;
    bulk = in_bulk(g, &g->bulk[group->bulk]);
    if (may_run(g) && wants(group)) {
        if ((bulk && channels_but(group, DRIVEN_ON)) || group->channels[DRIVEN_OFF])
            return NEED_ENABLE;
        return group->runlist == DRIVEN_ON ? NEED_NOTHING : NEED_SCHEDULE;
    }
    if (bulk && has_run(group) && (group->stopped || !may_run(g)) && channels_but(group, DRIVEN_OFF))
        return NEED_DISABLE;
    if (group->runlist == DRIVEN_OFF)
        return NEED_NOTHING;
    return may_run(g) || group->making || g->unconfirmed || !bulk ? NEED_UNSCHEDULE : NEED_NOTHING;
}

/* On a lost card nothing runs, so nothing is left to suspend. */
static bool is_gone(int e, bool enable)
{
    return e == -ESRCH || (!enable && rm_refused(e) == NV_ERR_GPU_IS_LOST);
}

static int schedule(struct groups *g, struct group *group, bool enable)
{
    int e = group_schedule(g->ops, g->driver, &group->name, enable);

    group->ran = group->ran || enable; /* RM may have done what it reports as failed */
    if (e < 0 && !is_gone(e, enable))
        return e;
    group->runlist = enable ? DRIVEN_ON : DRIVEN_OFF; /* a group that is gone will be forgotten */
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
    /* The call changed nothing. From now on groups are taken off their runlists instead. */
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

/* True for a group of a client without a subdevice, made by an older mgpud: nothing stops its work. */
static bool is_beyond_reach(const struct groups *g, const struct group *group, enum need need)
{
    return need == NEED_UNSCHEDULE && !may_run(g) && has_run(group) && !g->bulk[group->bulk].subdevice &&
           !refusals_any(g->refusals, group->card, MGPU_WITHOUT_DISABLE_CHANNELS);
}

static int act(struct groups *g, struct group *group, enum need need)
{
    int e;

    if (need == NEED_ENABLE || need == NEED_DISABLE)
        e = disable(g, group, need);
    else if ((e = is_beyond_reach(g, group, need) ? -EPERM : schedule(g, group, need == NEED_SCHEDULE)) < 0)
        group->failed = g->pass;
    if (e < 0 && (need == NEED_DISABLE || need == NEED_UNSCHEDULE))
        g->suspend_status = rm_refused(e);
    return rm_errno(e);
}

int group_apply(struct groups *g, struct group *group)
{
    enum need need;
    int e = 0;

    assert_held(&g->lock);
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
    /* No thread waits for the answers: until they are there the tenant counts as busy. */
    return groups_ask_recovered(g) ? 1 : g->error;
}

static int apply_all(struct groups *g)
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
    return run ? timeslices_apply(g) : 0; /* a group may have become the only one */
}

int groups_run(struct groups *g, bool run)
{
    int error, e;
    WITH_GROUPS(g);

    error = begin_run(g, run);
    e = apply_all(g);
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

/* Takes no lock: the scheduler holds it through a call to the driver, however long that takes. */
uint32_t groups_suspend_status(const struct groups *g)
{
    return atomic_load(&g->suspend_status);
}

int groups_pause(struct groups *g, bool paused)
{
    WITH_GROUPS(g);

    g->paused = paused;
    return apply_all(g);
}

int groups_want(struct groups *g, uint32_t client, uint32_t handle, bool wanted)
{
    struct group *group;
    WITH_GROUPS(g);

    if (!(group = group_find(g, client, handle)))
        return -ESRCH;
    group->wanted = wanted;
    return group_apply(g, group);
}

int groups_unconfirmed(struct groups *g, bool unconfirmed)
{
    WITH_GROUPS(g);

    g->unconfirmed = unconfirmed;
    return unconfirmed ? apply_all(g) : 0;
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
        if ((e = group_apply(g, &g->group[channel_find(g, client[i], channel[i])->group])) < 0)
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

    assert_held(&g->lock);
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
