#include "state.h"
#include <linux/futex.h>
#include <limits.h>
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

bool channel_has_work(const struct gpu_channel *channel)
{
    return !channel->off && !channel->failed && !channel->waits_for &&
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
    channel->fetched_count = 0;
    channel->begun = false;
    channel->group->totals.errors++;
}

static bool entry_fits(const struct gpu_channel *channel, const struct sim_ring_entry *entry)
{
    return entry->offset % 8 == 0 && entry->offset <= channel->memory->bytes &&
           entry->commands <= (channel->memory->bytes - entry->offset) / sizeof(struct sim_command);
}

/* Up to FETCH_AHEAD entries besides the one that executes. */
void channel_prefetch(struct gpu_channel *channel)
{
    const struct gpu_channel_layout *layout = &channel->layout;
    uint32_t room = FETCH_AHEAD + channel->begun, first = channel->get;

    if (channel->off || channel->failed)
        return;
    while (channel->fetched_count < room && channel->get != channel->put) {
        struct sim_ring_entry *entry = &channel->fetched[channel->fetched_count];
        uint64_t at = layout->ring_at + (uint64_t)(channel->get & (layout->entries - 1)) * sizeof *entry;

        entry->offset = read32(channel->memory, at + offsetof(struct sim_ring_entry, offset));
        entry->commands = read32(channel->memory, at + offsetof(struct sim_ring_entry, commands));
        if (!entry_fits(channel, entry)) {
            channel_fail(channel);
            break;
        }
        channel->fetched_count++;
        channel->get++;
    }
    if (channel->get != first)
        write32(channel->memory, layout->userd_at + RM_USERD_GP_GET, channel->get);
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

static void charge_front_end(struct gpu_channel *channel, uint32_t cost_ns)
{
    struct gpu_group *group = channel->group;
    uint64_t at_ns = group->engine->at_ns;

    if (group->front_ns + FETCH_BURST_NS < at_ns)
        group->front_ns = at_ns - FETCH_BURST_NS;
    group->front_ns += cost_ns;
}

static void begin_kernel(struct gpu_channel *channel, uint64_t kernel_ns)
{
    channel->executing = true;
    channel->kernel_ns = kernel_ns < KERNEL_MAX_NS ? kernel_ns : KERNEL_MAX_NS;
    channel->remaining_ns = channel->kernel_ns;
}

static uint64_t copy_ns(const struct gpu *gpu, uint64_t bytes)
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

static bool acquired(const struct sysmem *memory, const struct sim_command *command)
{
    uint32_t value = read32(memory, command->a + offsetof(struct sim_semaphore, value));

    return (int32_t)(value - (uint32_t)command->b) >= 0;
}

static void acquire(struct gpu_channel *channel)
{
    struct sysmem *memory = semaphore_memory(channel, &channel->command);

    if (!memory)
        channel_fail(channel);
    else if (acquired(memory, &channel->command))
        sysmem_put(memory);
    else
        block(channel, memory);
}

/* Another card's lock is not to be had under this one's: its thread is woken to look. */
static void kick_others(const struct gpu *gpu)
{
    static const uint64_t one = 1;

    for (uint32_t i = 0; i < gpu->all_count; i++)
        if (gpu->all[i] != gpu && gpu->all[i]->blocked_count)
            (void)!write(gpu->all[i]->kick_fd, &one, sizeof one);
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
    gpu_recheck(gpu, memory, 0);
    kick_others(gpu);
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
        acquire(channel);
        break;
    case SIM_CMD_RELEASE:
        release(channel, command);
        break;
    default:
        channel_fail(channel);
    }
}

void channel_step(struct gpu_channel *channel)
{
    struct sim_ring_entry *entry = &channel->fetched[0];
    struct sim_command *command = &channel->command;
    bool semaphore;

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
    if (!entry->commands) {
        end_entry(channel);
        return;
    }
    *command = (struct sim_command){
        .op = read32(channel->memory, entry->offset + offsetof(struct sim_command, op)),
        .memory = read32(channel->memory, entry->offset + offsetof(struct sim_command, memory)),
        .a = read64(channel->memory, entry->offset + offsetof(struct sim_command, a)),
        .b = read64(channel->memory, entry->offset + offsetof(struct sim_command, b)),
    };
    entry->offset += sizeof *command;
    entry->commands--;
    semaphore = command->op == SIM_CMD_ACQUIRE || command->op == SIM_CMD_RELEASE;
    charge_front_end(channel, semaphore ? SEMAPHORE_NS : FETCH_NS);
    execute(channel, command);
}

void channel_look(struct gpu_channel *channel)
{
    if (!channel->failed)
        channel->found = read32(channel->memory, channel->layout.userd_at + RM_USERD_GP_PUT);
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
            !acquired(channel->waits_for, &channel->command))
            continue;
        channel_unblock(channel);
        runqueue_update(channel->group);
    }
}
