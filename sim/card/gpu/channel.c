#include "push.h"
#include <fcntl.h>
#include <stdlib.h>

enum { SPACE_ENTRIES_MAX = 1 << 20 };
enum { RUNLIST_CHANNELS = 2048 }; /* NV_CHRAM_CHANNEL__SIZE_1, ga100/dev_runlist.h */

bool gpu_layout_fits(const struct gpu_channel_layout *layout, uint64_t memory_bytes, bool in_space)
{
    uint32_t entries = layout->entries, most = in_space ? SPACE_ENTRIES_MAX : SIM_RING_ENTRIES_MAX;
    uint64_t ring_bytes = (uint64_t)entries * sizeof(struct sim_ring_entry);

    if (!entries || entries > most || entries & (entries - 1))
        return false;
    if (layout->userd_at % 8 || layout->ring_at % 8)
        return false;
    if (in_space)
        return RM_USERD_BYTES <= memory_bytes && layout->userd_at <= memory_bytes - RM_USERD_BYTES;
    return RM_USERD_BYTES <= memory_bytes && layout->userd_at <= memory_bytes - RM_USERD_BYTES &&
           ring_bytes <= memory_bytes && layout->ring_at <= memory_bytes - ring_bytes;
}

bool gpu_runlist_is_full(const struct gpu_group *group)
{
    uint32_t channels = 0;

    gpu_lock(group->gpu);
    for (const struct gpu_group *other = group->gpu->groups; other; other = other->next)
        if (other->engine == group->engine)
            channels += other->channel_count;
    gpu_settle_unlock(group->gpu);
    return channels >= RUNLIST_CHANNELS;
}

struct gpu_channel *gpu_channel_create(struct gpu_group *group, struct sysmem *memory,
                                       const struct gpu_channel_layout *layout, struct vaspace *vaspace)
{
    struct gpu_channel *channel = NULL, **last = &group->channels;
    struct push *push = vaspace ? push_create(vaspace, group->gpu->launch_ns) : NULL;
    bool was_open;

    if (vaspace && !push)
        return NULL;
    gpu_lock(group->gpu);
    gpu_catch_up(group->gpu);
    if (group->channel_count < GPU_MAX_GROUP_CHANNELS)
        channel = calloc(1, sizeof *channel);
    if (channel) {
        channel->group = group;
        channel->layout = *layout;
        channel->push = push;
        channel->memory = sysmem_take(memory);
        while (*last)
            last = &(*last)->next;
        was_open = group_open(group);
        *last = channel;
        group->channel_count++;
        group_opens(group, was_open);
    }
    gpu_settle_unlock(group->gpu);
    if (!channel)
        push_free(push);
    return channel;
}

static void unlink_channel(struct gpu_channel *channel)
{
    struct gpu_group *group = channel->group;
    struct gpu_channel **at = &group->channels;

    while (*at != channel)
        at = &(*at)->next;
    *at = channel->next;
    group->channel_count--;
    if (group->turn == channel)
        group->turn = channel->next;
}

void gpu_channel_free(struct gpu_channel *channel)
{
    struct gpu_group *group = channel->group;
    bool was_open;

    gpu_lock(group->gpu);
    gpu_catch_up(group->gpu);
    was_open = group_open(group);
    engine_drop_kernel(channel);
    channel_unblock(channel);
    unlink_channel(channel);
    group_closes(group, was_open, group->gpu->at_ns);
    runqueue_update(group);
    gpu_settle_unlock(group->gpu);
    sysmem_put(channel->memory);
    push_free(channel->push);
    free(channel);
}

void gpu_lose(struct gpu *gpu)
{
    gpu_lock(gpu);
    gpu_catch_up(gpu);
    for (struct gpu_group *group = gpu->groups; group; group = group->next) {
        for (struct gpu_channel *channel = group->channels; channel; channel = channel->next)
            channel_fail(channel);
        runqueue_update(group);
    }
    gpu_settle_unlock(gpu);
}

static uint64_t turn_off(struct gpu_channel *channel)
{
    struct gpu_group *group = channel->group;
    uint64_t off_ns = group->gpu->at_ns;
    bool was_open = group_open(group);

    if (group->engine->kernel == channel || group->engine->moving == group)
        off_ns = engine_evict(group, true);
    channel->off = true;
    runqueue_update(group);
    group_closes(group, was_open, off_ns);
    return off_ns;
}

static void turn_on(struct gpu_channel *channel)
{
    struct gpu_group *group = channel->group;
    bool was_open = group_open(group);

    channel->off = false;
    group_opens(group, was_open);
    channel_accept(channel);
    if (group->engine->running == group)
        channel_prefetch(channel);
    runqueue_update(group);
}

uint64_t gpu_channels_off(struct gpu *gpu, struct gpu_channel *const *channels, uint32_t count)
{
    uint64_t off_ns;

    gpu_lock(gpu);
    off_ns = gpu_catch_up(gpu);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t one_ns = channels[i]->off ? 0 : turn_off(channels[i]);

        off_ns = one_ns > off_ns ? one_ns : off_ns;
    }
    gpu_settle_unlock(gpu);
    return off_ns;
}

void gpu_channels_on(struct gpu *gpu, struct gpu_channel *const *channels, uint32_t count)
{
    gpu_lock(gpu);
    for (uint32_t i = 0; i < count; i++)
        channel_look(channels[i]);
    gpu_catch_up(gpu);
    for (uint32_t i = 0; i < count; i++)
        if (channels[i]->off)
            turn_on(channels[i]);
    gpu_settle_unlock(gpu);
}

int gpu_channel_userd(const struct gpu_channel *channel, uint64_t *offset)
{
    *offset = channel->layout.userd_at;
    return memfd_reopen(channel->memory->fd, O_RDONLY);
}
