#include "state.h"

static bool channel_has_work(const struct gpu_channel *channel)
{
    return !channel->off && !channel->failed && !channel->faulted && !channel->waits_for &&
           (channel->fetched_count || channel->get != channel->put);
}

bool group_has_work(const struct gpu_group *group)
{
    for (const struct gpu_channel *channel = group->channels; channel; channel = channel->next)
        if (channel_has_work(channel))
            return true;
    return false;
}

struct gpu_channel *group_pick(struct gpu_group *group)
{
    struct gpu_channel *channel = group->turn;

    for (uint32_t i = 0; i < group->channel_count; i++) {
        if (!channel)
            channel = group->channels;
        if (channel_has_work(channel)) {
            group->turn = channel;
            return channel;
        }
        channel = channel->next;
    }
    return NULL;
}

/* A group that was alone begins a new timeslice whenever one ends; no wake-up is needed for that. */
static void renew_timeslice(struct gpu_engine *engine)
{
    uint64_t slice_ns = (uint64_t)engine->running->totals.timeslice_us * US_NS;
    uint64_t now_ns = engine->gpu->at_ns;

    if (engine->slice_end_ns < now_ns)
        engine->slice_end_ns += (now_ns - engine->slice_end_ns + slice_ns - 1) / slice_ns * slice_ns;
}

static void runqueue_push(struct gpu_group *group)
{
    struct gpu_engine *engine = group->engine;

    if (!engine->queue_first) {
        if (engine->state == ENGINE_RUNNING)
            renew_timeslice(engine);
        else if (engine->state == ENGINE_IDLE)
            engine->at_ns = engine->gpu->at_ns;
    }
    group->queued = true;
    group->next_queued = NULL;
    group->prev_queued = engine->queue_last;
    if (engine->queue_last)
        engine->queue_last->next_queued = group;
    else
        engine->queue_first = group;
    engine->queue_last = group;
}

void runqueue_remove(struct gpu_group *group)
{
    struct gpu_engine *engine = group->engine;

    if (!group->queued)
        return;
    group->queued = false;
    if (group->next_queued)
        group->next_queued->prev_queued = group->prev_queued;
    else
        engine->queue_last = group->prev_queued;
    if (group->prev_queued)
        group->prev_queued->next_queued = group->next_queued;
    else
        engine->queue_first = group->next_queued;
}

static bool loads(const struct gpu_group *group)
{
    return group->engine->state == ENGINE_LOADING && group->engine->moving == group;
}

void runqueue_update(struct gpu_group *group)
{
    bool runnable = group->totals.enabled && group_has_work(group);

    if (!runnable)
        runqueue_remove(group);
    else if (!group->queued && group->engine->running != group && !loads(group))
        runqueue_push(group);
}
