#include "../../../native_sched/nvidia/rm/channel.h"
#include "state.h"
#include <stdlib.h>

/* In turn, so that an id does not name another group soon. 0: none left. */
static uint32_t take_tsg(struct gpu *gpu)
{
    for (uint32_t tried = 0; tried < GPU_MAX_GROUPS; tried++) {
        uint32_t tsg = gpu->last_tsg % GPU_MAX_GROUPS + 1;

        gpu->last_tsg = tsg;
        if (gpu->tsg_used[tsg / 64] >> tsg % 64 & 1)
            continue;
        gpu->tsg_used[tsg / 64] |= UINT64_C(1) << tsg % 64;
        return tsg;
    }
    return 0;
}

struct gpu_group *gpu_group_create(struct gpu *gpu, uint32_t engine_type, const struct gpu_owner *owner)
{
    uint32_t engine = rm_is_video_engine(engine_type)  ? (uint32_t)GPU_ENGINE_VIDEO
                      : engine_type >= RM_ENGINE_COPY0 ? (uint32_t)SIM_ENGINE_COPY
                                                       : (uint32_t)SIM_ENGINE_GRAPHICS;
    struct gpu_group *group = calloc(1, sizeof *group);

    if (!group)
        return NULL;
    group->gpu = gpu;
    group->engine = &gpu->engines[engine];
    group->status_at = gpu->registers ? registers_status(gpu->registers, engine_type) : 0;
    group->totals.owner = *owner;
    group->totals.engine = engine;
    group->totals.timeslice_us = GPU_DEFAULT_TIMESLICE_US;
    gpu_lock(gpu);
    group->totals.tsg = take_tsg(gpu);
    if (group->totals.tsg) {
        group->next = gpu->groups;
        if (gpu->groups)
            gpu->groups->prev = group;
        gpu->groups = group;
    }
    pthread_mutex_unlock(&gpu->lock);
    if (group->totals.tsg)
        return group;
    free(group);
    return NULL;
}

void gpu_group_free(struct gpu_group *group)
{
    struct gpu *gpu = group->gpu;
    uint32_t tsg = group->totals.tsg;

    gpu_lock(gpu);
    gpu_catch_up(gpu);
    engine_evict(group, false);
    if (group->next)
        group->next->prev = group->prev;
    if (group->prev)
        group->prev->next = group->next;
    else
        gpu->groups = group->next;
    gpu->tsg_used[tsg / 64] &= ~(UINT64_C(1) << tsg % 64);
    gpu->ended[gpu->ended_count++ % ENDED_GROUPS] = group->totals;
    gpu_settle_unlock(gpu);
    free(group);
}

bool group_open(const struct gpu_group *group)
{
    const struct gpu_channel *channel = group->channels;

    while (channel && channel->off)
        channel = channel->next;
    return group->totals.enabled && channel;
}

void group_opens(struct gpu_group *group, bool was_open)
{
    uint64_t now_ns = group->gpu->at_ns;

    if (!was_open && group_open(group))
        group_record(group, TIMELINE_ENABLE, now_ns, now_ns);
}

void group_closes(struct gpu_group *group, bool was_open, uint64_t off_ns)
{
    if (!was_open || group_open(group))
        return;
    group->disabled_by_save = off_ns > group->gpu->at_ns;
    if (!group->disabled_by_save)
        group_record(group, TIMELINE_DISABLE, off_ns, off_ns);
}

uint32_t gpu_group_tsg(const struct gpu_group *group)
{
    return group->totals.tsg;
}

void gpu_group_enable(struct gpu_group *group)
{
    bool was_open;

    gpu_lock(group->gpu);
    for (struct gpu_channel *channel = group->channels; channel; channel = channel->next)
        channel_look(channel);
    gpu_catch_up(group->gpu);
    was_open = group_open(group);
    group->totals.enabled = true;
    group_opens(group, was_open);
    for (struct gpu_channel *channel = group->channels; channel; channel = channel->next)
        channel_accept(channel);
    runqueue_update(group);
    gpu_settle_unlock(group->gpu);
}

uint64_t gpu_group_disable(struct gpu_group *group)
{
    uint64_t off_ns;

    gpu_lock(group->gpu);
    off_ns = gpu_catch_up(group->gpu);
    if (group->totals.enabled) {
        bool was_open = group_open(group);

        group->totals.enabled = false;
        off_ns = engine_evict(group, true);
        group_closes(group, was_open, off_ns);
    }
    gpu_settle_unlock(group->gpu);
    return off_ns;
}

uint64_t gpu_group_preempt(struct gpu_group *group)
{
    uint64_t off_ns;

    gpu_lock(group->gpu);
    gpu_catch_up(group->gpu);
    off_ns = engine_preempt(group);
    gpu_settle_unlock(group->gpu);
    return off_ns;
}

void gpu_group_set_timeslice(struct gpu_group *group, uint32_t timeslice_us)
{
    struct gpu_engine *engine = group->engine;
    uint64_t begun_ns;

    timeslice_us = timeslice_us ? timeslice_us : 1;
    gpu_lock(group->gpu);
    gpu_catch_up(group->gpu);
    if (engine->running == group) {
        begun_ns = engine->slice_end_ns - (uint64_t)group->totals.timeslice_us * US_NS;
        engine->slice_end_ns = begun_ns + (uint64_t)timeslice_us * US_NS;
    }
    group->totals.timeslice_us = timeslice_us;
    gpu_settle_unlock(group->gpu);
}

uint32_t gpu_group_timeslice_us(struct gpu_group *group)
{
    uint32_t timeslice_us;

    gpu_lock(group->gpu);
    timeslice_us = group->totals.timeslice_us;
    pthread_mutex_unlock(&group->gpu->lock);
    return timeslice_us;
}

void gpu_each_channel_of(struct gpu *gpu, uint32_t client, void (*act)(struct gpu_channel *channel))
{
    for (struct gpu_group *group = gpu->groups; group; group = group->next) {
        if (group->totals.owner.client != client)
            continue;
        for (struct gpu_channel *channel = group->channels; channel; channel = channel->next)
            act(channel);
    }
}
