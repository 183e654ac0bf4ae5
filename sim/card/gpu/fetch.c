#include "push.h"
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static void write32(const struct sysmem *memory, uint64_t at, uint32_t value)
{
    __atomic_store_n((uint32_t *)(void *)(memory->at + at), value, __ATOMIC_RELEASE);
}

static void write64(const struct sysmem *memory, uint64_t at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(memory->at + at), value, __ATOMIC_RELEASE);
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
    entry->at = sysmem_read32(channel->memory, at + offsetof(struct sim_ring_entry, offset));
    entry->count = sysmem_read32(channel->memory, at + offsetof(struct sim_ring_entry, commands));
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
        .op = sysmem_read32(channel->memory, entry->at + offsetof(struct sim_command, op)),
        .memory = sysmem_read32(channel->memory, entry->at + offsetof(struct sim_command, memory)),
        .a = sysmem_read64(channel->memory, entry->at + offsetof(struct sim_command, a)),
        .b = sysmem_read64(channel->memory, entry->at + offsetof(struct sim_command, b)),
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
    put = sysmem_read32(channel->memory, channel->layout.userd_at + RM_USERD_GP_PUT);
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
