#include "state.h"

void channel_unblock(struct gpu_channel *channel)
{
    struct gpu *gpu = channel->group->gpu;

    if (!channel->waits_for)
        return;
    sysmem_put(channel->waits_for);
    channel->waits_for = NULL;
    gpu->blocked_count--;
    if (channel->next_blocked)
        channel->next_blocked->prev_blocked = channel->prev_blocked;
    if (channel->prev_blocked)
        channel->prev_blocked->next_blocked = channel->next_blocked;
    else
        gpu->blocked = channel->next_blocked;
}

static void block(struct gpu_channel *channel, struct sysmem *memory)
{
    struct gpu *gpu = channel->group->gpu;

    channel->waits_for = memory;
    channel->prev_blocked = NULL;
    channel->next_blocked = gpu->blocked;
    if (gpu->blocked)
        gpu->blocked->prev_blocked = channel;
    gpu->blocked = channel;
    gpu->blocked_count++;
}

/* Only a new channel goes on. */
void channel_fail(struct gpu_channel *channel)
{
    engine_drop_kernel(channel);
    channel_unblock(channel);
    channel->failed = true;
    channel->faulted = false;
    channel->fetched_count = 0;
    channel->begun = false;
    channel->group->totals.errors++;
}

void channel_fault(struct gpu_channel *channel, uint64_t address)
{
    const struct gpu_faults *faults = &channel->group->gpu->faults;

    channel->faulted = faults->tell && faults->tell(faults->of, channel->layout.instance, address);
    if (!channel->faulted)
        channel_fail(channel);
}

void gpu_replay(struct gpu *gpu, bool cancelled)
{
    for (struct gpu_group *group = gpu->groups; group; group = group->next) {
        for (struct gpu_channel *channel = group->channels; channel; channel = channel->next) {
            if (channel->faulted && cancelled)
                channel_fail(channel);
            channel->faulted = false;
        }
        runqueue_update(group);
    }
}

void charge_front_end(struct gpu_channel *channel, uint32_t cost_ns)
{
    struct gpu_group *group = channel->group;
    uint64_t at_ns = group->engine->at_ns;

    if (group->front_ns + FETCH_BURST_NS < at_ns)
        group->front_ns = at_ns - FETCH_BURST_NS;
    group->front_ns += cost_ns;
}

void begin_kernel(struct gpu_channel *channel, uint64_t kernel_ns)
{
    channel->executing = true;
    channel->kernel_ns = kernel_ns < KERNEL_MAX_NS ? kernel_ns : KERNEL_MAX_NS;
    channel->remaining_ns = channel->kernel_ns;
}

uint64_t copy_ns(const struct gpu *gpu, uint64_t bytes)
{
    uint64_t per_ms = gpu->copy_bytes_per_ms, whole_ms = bytes / per_ms;

    if (whole_ms > KERNEL_MAX_NS / 1000000u)
        return KERNEL_MAX_NS;
    return whole_ms * 1000000u + bytes % per_ms * 1000000u / per_ms;
}

static bool acquired(const struct sysmem *memory, const struct gpu_wait *wait)
{
    uint64_t value = wait->wide ? sysmem_read64(memory, wait->at) : sysmem_read32(memory, wait->at);
    uint64_t all = wait->wide ? UINT64_MAX : UINT32_MAX;

    switch (wait->how) {
    case WAIT_EQUAL:
        return value == wait->value;
    case WAIT_GEQ:
        return value >= wait->value;
    case WAIT_CIRCULAR_GEQ:
        return wait->wide ? (int64_t)(value - wait->value) >= 0 : (int32_t)(value - wait->value) >= 0;
    case WAIT_AND:
        return value & wait->value;
    case WAIT_NOR:
        return ~(value | wait->value) & all;
    }
    return false;
}

void channel_wait(struct gpu_channel *channel, struct sysmem *memory)
{
    if (acquired(memory, &channel->wait))
        sysmem_put(memory);
    else
        block(channel, memory);
}

void gpu_recheck(struct gpu *gpu, const struct sysmem *memory, uint32_t client)
{
    struct gpu_channel *next;

    for (struct gpu_channel *channel = gpu->blocked; channel; channel = next) {
        next = channel->next_blocked;
        if ((memory && channel->waits_for != memory) ||
            (client && channel->group->totals.owner.client != client) ||
            !acquired(channel->waits_for, &channel->wait))
            continue;
        channel_unblock(channel);
        runqueue_update(channel->group);
    }
}

void semaphore_released(struct gpu *gpu, const struct sysmem *memory)
{
    gpu_recheck(gpu, memory, 0);
    gpu_kick_others(gpu);
}
