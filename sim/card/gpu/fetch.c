#include "push.h"
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The memory is also the program's, which writes to it at any time: every word is read once, then checked. */
static uint32_t read32(const struct sysmem *memory, uint64_t at)
{
    return __atomic_load_n((const uint32_t *)(const void *)(memory->at + at), __ATOMIC_ACQUIRE);
}

static uint64_t read64(const struct sysmem *memory, uint64_t at)
{
    return __atomic_load_n((const uint64_t *)(const void *)(memory->at + at), __ATOMIC_ACQUIRE);
}

static void write32(const struct sysmem *memory, uint64_t at, uint32_t value)
{
    __atomic_store_n((uint32_t *)(void *)(memory->at + at), value, __ATOMIC_RELEASE);
}

static void write64(const struct sysmem *memory, uint64_t at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(memory->at + at), value, __ATOMIC_RELEASE);
}

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

static bool entry_fits(const struct gpu_channel *channel, const struct ring_entry *entry)
{
    return entry->at % 8 == 0 && entry->at <= channel->memory->bytes &&
           entry->count <= (channel->memory->bytes - entry->at) / sizeof(struct sim_command);
}

static bool read_entry(const struct gpu_channel *channel, uint32_t number, struct ring_entry *entry)
{
    const struct gpu_channel_layout *layout = &channel->layout;
    uint64_t at = layout->ring_at +
                  (uint64_t)(number & (layout->entries - 1)) * sizeof(struct sim_ring_entry);

    if (channel->push)
        return push_entry(channel, number, entry);
    entry->at = read32(channel->memory, at + offsetof(struct sim_ring_entry, offset));
    entry->count = read32(channel->memory, at + offsetof(struct sim_ring_entry, commands));
    return entry_fits(channel, entry);
}

/* Counters run freely here; NVIDIA's are places in the ring. */
static uint32_t shown(const struct gpu_channel *channel, uint32_t counter)
{
    return channel->push ? counter & (channel->layout.entries - 1) : counter;
}

/* Up to FETCH_AHEAD entries besides the one that executes. */
void channel_prefetch(struct gpu_channel *channel)
{
    uint32_t room = FETCH_AHEAD + channel->begun, first = channel->get;

    if (channel->off || channel->failed)
        return;
    while (channel->fetched_count < room && channel->get != channel->put) {
        if (!read_entry(channel, channel->get, &channel->fetched[channel->fetched_count])) {
            channel_fail(channel);
            break;
        }
        channel->fetched_count++;
        channel->get++;
    }
    if (channel->get != first && channel->layout.shows_get)
        write32(channel->memory, channel->layout.userd_at + RM_USERD_GP_GET, shown(channel, channel->get));
}

static void end_entry(struct gpu_channel *channel)
{
    channel->begun = false;
    channel->fetched_count--;
    for (uint32_t i = 0; i < channel->fetched_count; i++)
        channel->fetched[i] = channel->fetched[i + 1];
    channel->group->turn = channel->next;
    channel_prefetch(channel);
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

/* With a reference; NULL when the command names what is not there. */
static struct sysmem *semaphore_memory(const struct gpu_channel *channel, const struct sim_command *command)
{
    uint32_t client = channel->group->totals.owner.client;
    struct sysmem *memory;

    memory = command->memory ? sysmem_get(client, command->memory) : sysmem_take(channel->memory);
    if (!memory)
        return NULL;
    if (command->a % 8 == 0 && command->a <= memory->bytes - sizeof(struct sim_semaphore))
        return memory;
    sysmem_put(memory);
    return NULL;
}

static bool acquired(const struct sysmem *memory, const struct gpu_wait *wait)
{
    uint64_t value = wait->wide ? read64(memory, wait->at) : read32(memory, wait->at);
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

static void acquire(struct gpu_channel *channel, const struct sim_command *command)
{
    struct sysmem *memory = semaphore_memory(channel, command);

    channel->wait = (struct gpu_wait){command->a + offsetof(struct sim_semaphore, value),
                                      (uint32_t)command->b, WAIT_CIRCULAR_GEQ, false};
    if (memory)
        channel_wait(channel, memory);
    else
        channel_fail(channel);
}

void semaphore_released(struct gpu *gpu, const struct sysmem *memory)
{
    gpu_recheck(gpu, memory, 0);
    gpu_kick_others(gpu);
}

static void release(struct gpu_channel *channel, const struct sim_command *command)
{
    struct gpu *gpu = channel->group->gpu;
    struct sysmem *memory = semaphore_memory(channel, command);
    uint32_t *value;

    if (!memory) {
        channel_fail(channel);
        return;
    }
    value = (uint32_t *)(void *)(memory->at + command->a + offsetof(struct sim_semaphore, value));
    write64(memory, command->a + offsetof(struct sim_semaphore, timestamp_ns), gpu->at_ns);
    write32(memory, command->a + offsetof(struct sim_semaphore, value), (uint32_t)command->b);
    syscall(SYS_futex, value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    semaphore_released(gpu, memory);
    sysmem_put(memory);
}

static void execute(struct gpu_channel *channel, const struct sim_command *command)
{
    switch (command->op) {
    case SIM_CMD_KERNEL:
        begin_kernel(channel, command->a);
        break;
    case SIM_CMD_COPY:
        begin_kernel(channel, copy_ns(channel->group->gpu, command->a));
        break;
    case SIM_CMD_ACQUIRE:
        acquire(channel, command);
        break;
    case SIM_CMD_RELEASE:
        release(channel, command);
        break;
    default:
        channel_fail(channel);
    }
}

static void command_step(struct gpu_channel *channel, struct ring_entry *entry)
{
    const struct sim_command command = {
        .op = read32(channel->memory, entry->at + offsetof(struct sim_command, op)),
        .memory = read32(channel->memory, entry->at + offsetof(struct sim_command, memory)),
        .a = read64(channel->memory, entry->at + offsetof(struct sim_command, a)),
        .b = read64(channel->memory, entry->at + offsetof(struct sim_command, b)),
    };
    bool semaphore = command.op == SIM_CMD_ACQUIRE || command.op == SIM_CMD_RELEASE;

    entry->at += sizeof command;
    entry->count--;
    charge_front_end(channel, semaphore ? SEMAPHORE_NS : FETCH_NS);
    execute(channel, &command);
}

void channel_step(struct gpu_channel *channel)
{
    struct ring_entry *entry = &channel->fetched[0];

    if (!channel->fetched_count)
        channel_prefetch(channel);
    if (!channel->fetched_count)
        return;
    if (!channel->begun) {
        channel->begun = true;
        charge_front_end(channel, FETCH_NS);
        channel_prefetch(channel);
        if (channel->failed)
            return;
    }
    if (!entry->count && !(channel->push && push_is_due(channel->push)))
        end_entry(channel);
    else if (channel->push)
        push_step(channel, entry);
    else
        command_step(channel, entry);
}

void channel_look(struct gpu_channel *channel)
{
    uint32_t put;

    if (channel->failed)
        return;
    put = read32(channel->memory, channel->layout.userd_at + RM_USERD_GP_PUT);
    if (channel->push)
        put = channel->put + ((put - channel->put) & (channel->layout.entries - 1));
    channel->found = put;
}

void channel_accept(struct gpu_channel *channel)
{
    struct gpu_group *group = channel->group;

    if (channel->failed || channel->found == channel->put)
        return;
    /* Neither back nor further than the ring is long. */
    if (channel->found - channel->get > channel->layout.entries ||
        channel->found - channel->get < channel->put - channel->get) {
        channel_fail(channel);
        runqueue_update(group);
        return;
    }
    channel->put = channel->found;
    if (group->engine->running == group)
        channel_prefetch(channel);
    runqueue_update(group);
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
