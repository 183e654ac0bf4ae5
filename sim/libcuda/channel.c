#include "../../native_sched/nvidia/rm/channel.h"
#include "../../base/mutex.h"
#include "engines.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The ring bounds how far a program runs ahead: as on a real card about a thousand launches. */
enum { RING_ENTRIES = 1024, COMMANDS = 2 * CHANNEL_COMMANDS_MAX };
/* A thread that found the ring full goes on when so many entries are done: not one wake-up for each. */
enum { ROOM_ENTRIES = 16 };
enum {
    USERD_AT = 0,
    PROGRESS_AT = RM_USERD_BYTES,
    RING_AT = 4096,
    COMMANDS_AT = RING_AT + RING_ENTRIES * sizeof(struct sim_ring_entry),
    CHANNEL_BYTES = COMMANDS_AT + COMMANDS * sizeof(struct sim_command),
};
_Static_assert((int)CHANNEL_BYTES <= (int)SIM_MEMORY_BYTES_MAX &&
                   (int)RING_ENTRIES <= (int)SIM_RING_ENTRIES_MAX,
               "the card takes no more");
_Static_assert(COMMANDS_AT % sizeof(uint64_t) == 0, "commands are 8-aligned");

static const uint32_t engine_types[SIM_ENGINES] = {
    [SIM_ENGINE_GRAPHICS] = RM_ENGINE_GRAPHICS,
    [SIM_ENGINE_COPY] = RM_ENGINE_COPY0,
};

/* In its group, with the ring in `memory`. */
static uint32_t channel_alloc(struct channel *channel)
{
    const struct engines *engines = channel->engines;
    enum sim_engine_index engine = channel->index / LANES;
    struct rm_channel params = {
        .gpfifo_offset = RING_AT,
        .gpfifo_entries = RING_ENTRIES,
        .userd_memory = {channel->memory},
        .userd_offset = {USERD_AT},
        .engine_type = engine_types[engine],
    };
    uint8_t wire[RM_CHANNEL_MAX];

    return rmc_alloc(engines->rm, engines->group[engine], &channel->handle,
                     engines->card->model->channel_class, wire,
                     rm_channel_write(&engines->rm->table, &params, wire));
}

struct channel *channel_make(struct engines *engines, uint32_t index, uint32_t *status)
{
    struct channel *channel = calloc(1, sizeof *channel);

    *status = NV_ERR_NO_MEMORY;
    if (!channel)
        return NULL;
    channel->engines = engines;
    channel->index = index;
    pthread_mutex_init(&channel->lock, NULL);
    channel->ends = calloc(RING_ENTRIES, sizeof *channel->ends);
    if (channel->ends)
        *status = engines_memory(engines, CHANNEL_BYTES, &channel->memory, &channel->map);
    if (!*status)
        *status = channel_alloc(channel);
    if (!*status)
        return channel;
    channel_end(channel);
    channel_free(channel);
    return NULL;
}

void channel_end(const struct channel *channel)
{
    if (channel->handle)
        rmc_free(channel->engines->rm, channel->handle);
    if (channel->memory)
        rmc_free(channel->engines->rm, channel->memory);
}

/* The ring begins anew, and the count of entries goes on. */
uint32_t channel_return(struct channel *channel)
{
    uint32_t status;

    channel->handle = 0;
    channel->base = channel->put;
    status = engines_memory_at(channel->engines, CHANNEL_BYTES, PROGRESS_AT, sizeof(struct sim_semaphore),
                               &channel->memory, channel->map);
    return status ? status : channel_alloc(channel);
}

void channel_free(struct channel *channel)
{
    if (channel->map)
        munmap(channel->map, CHANNEL_BYTES);
    pthread_mutex_destroy(&channel->lock);
    free(channel->ends);
    free(channel);
}

static struct sim_semaphore *channel_progress(const struct channel *channel)
{
    return (struct sim_semaphore *)(void *)(channel->map + PROGRESS_AT);
}

static uint64_t skip_to_contiguous(const struct channel *channel, uint32_t count)
{
    uint64_t at = channel->head % COMMANDS;

    return at + count > COMMANDS ? COMMANDS - at : 0;
}

static bool has_room(struct channel *channel, uint32_t count)
{
    uint32_t done = __atomic_load_n(&channel_progress(channel)->value, __ATOMIC_ACQUIRE);

    while (channel->freed != done)
        channel->tail = channel->ends[channel->freed++ % RING_ENTRIES];
    return channel->put - channel->freed < RING_ENTRIES &&
           channel->head + skip_to_contiguous(channel, count) + count - channel->tail <= COMMANDS;
}

/* Channel lock held. The progress semaphore counts entries: its value after this one is `put` after it. */
static CUresult put_entry(struct channel *channel, struct commands before, struct commands work)
{
    uint32_t count = before.count + work.count + 1;
    struct sim_ring_entry *ring = (void *)(channel->map + RING_AT);
    uint32_t *gp_put = (void *)(channel->map + USERD_AT + RM_USERD_GP_PUT);
    struct sim_command *commands;
    CUresult error;

    while (!has_room(channel, count)) {
        uint32_t pending = channel->put - channel->freed;

        error = semaphore_wait(channel->engines, channel_progress(channel),
                               channel->freed + (pending < ROOM_ENTRIES ? pending : ROOM_ENTRIES));
        if (error)
            return error;
    }
    channel->head += skip_to_contiguous(channel, count);
    commands = (struct sim_command *)(void *)(channel->map + COMMANDS_AT) + channel->head % COMMANDS;
    memcpy(commands, before.first, before.count * sizeof *commands);
    memcpy(commands + before.count, work.first, work.count * sizeof *commands);
    commands[count - 1] = (struct sim_command){
        .op = SIM_CMD_RELEASE, .a = PROGRESS_AT, .b = channel->put + 1};
    ring[(channel->put - channel->base) % RING_ENTRIES] = (struct sim_ring_entry){
        .offset = (uint32_t)((uint8_t *)commands - channel->map),
        .commands = count,
    };
    channel->head += count;
    channel->ends[channel->put % RING_ENTRIES] = channel->head;
    __atomic_store_n(&channel->put, channel->put + 1, __ATOMIC_RELEASE);
    __atomic_store_n(gp_put, channel->put - channel->base, __ATOMIC_SEQ_CST);
    engines_ring(channel->engines);
    return CUDA_SUCCESS;
}

static CUresult put_entries(struct channel *channel, struct commands before, struct commands work)
{
    static const struct commands nothing = {NULL, 0};
    CUresult error;

    while (before.count + work.count + 1 > CHANNEL_COMMANDS_MAX) {
        uint32_t part = CHANNEL_COMMANDS_MAX - before.count - 1;

        error = put_entry(channel, before, (struct commands){work.first, part});
        if (error)
            return error;
        before = nothing;
        work = (struct commands){work.first + part, work.count - part};
    }
    return put_entry(channel, before, work);
}

mark_t channel_mark(const struct channel *channel)
{
    return (mark_t)(channel->index + 1) << 32 | __atomic_load_n(&channel->put, __ATOMIC_ACQUIRE);
}

CUresult channel_submit(struct channel *channel, struct commands before, struct commands work, bool blocking,
                        mark_t *mark)
{
    CUresult error = engines_error(channel->engines);

    if (error)
        return error;
    LOCKED(&channel->lock);
    error = put_entries(channel, before, work);
    *mark = channel_mark(channel);
    if (!error && blocking)
        __atomic_store_n(&channel->blocking, *mark, __ATOMIC_RELEASE);
    return error;
}

static struct channel *channel_of(struct engines *engines, mark_t mark)
{
    return engines_channel_at(engines, (uint32_t)(mark >> 32) - 1);
}

bool mark_reached(struct engines *engines, mark_t mark)
{
    return mark == NO_MARK || semaphore_reached(channel_progress(channel_of(engines, mark)), (uint32_t)mark);
}

bool mark_acquire(struct engines *engines, mark_t mark, struct sim_command *command)
{
    if (mark_reached(engines, mark))
        return false;
    *command = (struct sim_command){
        .op = SIM_CMD_ACQUIRE,
        .memory = channel_of(engines, mark)->memory,
        .a = PROGRESS_AT,
        .b = (uint32_t)mark,
    };
    return true;
}

CUresult mark_wait(struct engines *engines, mark_t mark)
{
    CUresult error = engines_error(engines);

    if (error || mark == NO_MARK)
        return error;
    return semaphore_wait(engines, channel_progress(channel_of(engines, mark)), (uint32_t)mark);
}
