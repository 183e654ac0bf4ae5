#include "push.h"
#include <stdlib.h>

enum { WORDS_PER_STEP = 256, HOST_METHODS = 0x100 };
/* clc86f.h: SET_PB_SEGMENT_EXTENDED_BASE. */
enum { OPCODE_MASK = 0xff, SET_BASE = 4, BASE_MASK = 0x1ffff, BASE_SHIFT = 40 };
/* Where the hardware has a channel's engines unless SET_OBJECT says otherwise: copies "recommended by HW" in
 * uvm_maxwell_ce.c of nvidia-uvm; programs without libcuda rely on both. */
enum { COMPUTE_SUBCHANNEL = 1, COPY_SUBCHANNEL = 4, ANY_COMPUTE = 0xc0, ANY_COPY = 0xb5 };
enum {
    SET_OBJECT = 0x0,
    MEM_OP_C = 0x30,
    MEM_OP_D = 0x34,
    SEMAPHOREA = 0x10, /* as Fermi's hosts have them, and those since then too */
    SEMAPHOREB = 0x14,
    SEMAPHOREC = 0x18,
    SEMAPHORED = 0x1c,
    SEM_ADDR_LO = 0x5c,
    SEM_ADDR_HI = 0x60,
    SEM_PAYLOAD_LO = 0x64,
    SEM_PAYLOAD_HI = 0x68,
    SEM_EXECUTE = 0x6c,
};
enum { OPERATION_SHIFT = 27, TLB_INVALIDATE = 9, TLB_INVALIDATE_TARGETED, REPLAY_SHIFT = 2, REPLAY_MASK = 7 };
enum { REPLAY_START = 1, REPLAY_CANCEL_FIRST = 3 };
enum { SEM_OPERATION_MASK = 7, SEM_RELEASE = 1, SEM_REDUCTION = 6 };
enum { OLD_ACQUIRE = 1, OLD_RELEASE = 2, OLD_ACQ_GEQ = 4, OLD_ACQ_AND = 8, OLD_OPERATION_MASK = 0x1f };
#define OLD_4BYTE     (1u << 24)
#define SEM_64BIT     (1u << 24)
#define SEM_TIMESTAMP (1u << 25)
/* The kind of a header, in its three highest bits. */
enum {
    KIND_OLD,
    KIND_INCREASING,
    KIND_OLD_SAME,
    KIND_SAME,
    KIND_IMMEDIATE,
    KIND_ONCE,
    KIND_RESERVED,
    KIND_END
};

struct push *push_create(struct vaspace *vaspace, uint64_t launch_ns)
{
    struct push *push = calloc(1, sizeof *push);

    if (!push)
        return NULL;
    push->vaspace = vaspace_take(vaspace);
    push->launch_ns = launch_ns;
    push->object[COMPUTE_SUBCHANNEL] = ANY_COMPUTE;
    push->object[COPY_SUBCHANNEL] = ANY_COPY;
    return push;
}

void push_free(struct push *push)
{
    if (push)
        vaspace_put(push->vaspace);
    free(push);
}

bool push_entry(const struct gpu_channel *channel, uint32_t number, struct ring_entry *entry)
{
    uint64_t at = channel->layout.ring_at + (uint64_t)(number & (channel->layout.entries - 1)) * 8, word;
    struct view view;
    bool there = vaspace_view(channel->push->vaspace, at, 8, &view) && view.bytes == 8 && view.memory;

    if (there) {
        word = __atomic_load_n((const uint64_t *)(const void *)view_at(&view), __ATOMIC_ACQUIRE);
        /* Without words it is a control entry, as one that says where the words of the following ones are. */
        entry->at = (word & 0xfffffffffcu) | channel->push->base;
        entry->count = word >> 42 & 0x1fffff;
        if (!entry->count && (word >> 32 & OPCODE_MASK) == SET_BASE)
            channel->push->base = (word >> 8 & BASE_MASK) << BASE_SHIFT;
    }
    view_put(&view);
    return there;
}

/* False: it is not mapped, or does not lie as a semaphore must. */
static bool semaphore_view(const struct push *push, uint64_t address, uint64_t bytes, struct view *view)
{
    if (address % (bytes < 8 ? 4 : 8) || !vaspace_view(push->vaspace, address, bytes, view))
        return false;
    if (view->memory && view->bytes == bytes)
        return true;
    view_put(view);
    return false;
}

static void release(struct gpu_channel *channel, const struct release *r)
{
    struct gpu *gpu = channel->group->gpu;
    struct view view;
    uint64_t *words;

    if (!semaphore_view(channel->push, r->address, r->timed ? 16 : r->wide ? 8 : 4, &view)) {
        channel_fail(channel);
        return;
    }
    words = (uint64_t *)(void *)view_at(&view);
    if (r->timed)
        __atomic_store_n(&words[1], gpu->at_ns, __ATOMIC_RELEASE);
    if (r->timed || r->wide)
        __atomic_store_n(&words[0], r->wide ? r->payload : (uint32_t)r->payload, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)(void *)words, (uint32_t)r->payload, __ATOMIC_RELEASE);
    semaphore_released(gpu, view.memory);
    view_put(&view);
}

static void acquire(struct gpu_channel *channel, uint64_t address, uint64_t payload, uint32_t execute)
{
    bool wide = execute & SEM_64BIT;
    struct view view;

    if (!semaphore_view(channel->push, address, wide ? 8 : 4, &view)) {
        channel_fail(channel);
        return;
    }
    channel->wait = (struct gpu_wait){view.offset, wide ? payload : (uint32_t)payload,
                                      execute & SEM_OPERATION_MASK, wide};
    channel_wait(channel, view.memory);
}

static void semaphore(struct gpu_channel *channel, uint32_t execute)
{
    const uint32_t *host = channel->push->host;
    uint64_t address = (uint64_t)(host[SEM_ADDR_HI / 4] & 0x1ffffff) << 32 | host[SEM_ADDR_LO / 4];
    uint64_t payload = (uint64_t)host[SEM_PAYLOAD_HI / 4] << 32 | host[SEM_PAYLOAD_LO / 4];
    const struct release r = {address, payload, execute & SEM_64BIT, execute & SEM_TIMESTAMP};

    charge_front_end(channel, SEMAPHORE_NS);
    switch (execute & SEM_OPERATION_MASK) {
    case SEM_RELEASE: /* whatever the channel began is done by then */
        release(channel, &r);
        break;
    case SEM_REDUCTION:
    case SEM_REDUCTION + 1:
        channel_fail(channel);
        break;
    default:
        acquire(channel, address, payload, execute);
    }
}

/* The same in the words of before Volta, which NVIDIA's driver still uses in its own channels. */
static void old_semaphore(struct gpu_channel *channel, uint32_t how)
{
    const uint32_t *host = channel->push->host;
    uint64_t address = (uint64_t)(host[SEMAPHOREA / 4] & 0xff) << 32 | host[SEMAPHOREB / 4];
    const struct release r = {address, host[SEMAPHOREC / 4], false, !(how & OLD_4BYTE)};

    charge_front_end(channel, SEMAPHORE_NS);
    switch (how & OLD_OPERATION_MASK) {
    case OLD_RELEASE:
        release(channel, &r);
        break;
    case OLD_ACQUIRE:
        acquire(channel, address, r.payload, WAIT_EQUAL);
        break;
    case OLD_ACQ_GEQ:
        acquire(channel, address, r.payload, WAIT_CIRCULAR_GEQ);
        break;
    case OLD_ACQ_AND:
        acquire(channel, address, r.payload, WAIT_AND);
        break;
    default:
        channel_fail(channel);
    }
}

/* Tables are walked anew for every access, so of an invalidation only the replay is left. */
static void memory_operation(struct gpu_channel *channel, uint32_t how)
{
    uint32_t replay = channel->push->host[MEM_OP_C / 4] >> REPLAY_SHIFT & REPLAY_MASK;
    uint32_t operation = how >> OPERATION_SHIFT;

    if ((operation == TLB_INVALIDATE || operation == TLB_INVALIDATE_TARGETED) && replay >= REPLAY_START)
        gpu_replay(channel->group->gpu, replay >= REPLAY_CANCEL_FIRST);
}

static bool host_method(struct gpu_channel *channel, uint32_t subchannel, uint32_t method, uint32_t data)
{
    channel->push->host[method / 4] = data;
    if (method == SET_OBJECT)
        channel->push->object[subchannel] = data & 0xffff;
    if (method == SEM_EXECUTE)
        semaphore(channel, data);
    if (method == SEMAPHORED)
        old_semaphore(channel, data);
    if (method == MEM_OP_D)
        memory_operation(channel, data);
    return method == SEM_EXECUTE || method == SEMAPHORED;
}

static bool method(struct gpu_channel *channel, uint32_t subchannel, uint32_t at, uint32_t data)
{
    uint32_t object = channel->push->object[subchannel];

    if (at < HOST_METHODS)
        return host_method(channel, subchannel, at, data);
    /* A copy engine of its own looks at no subchannel: nvidia-uvm names its class on the first and uses
     * another. */
    if (!object && channel->group->engine->index == SIM_ENGINE_COPY)
        object = channel->push->object[0];
    switch (object & 0xff) {
    case ANY_COPY:
        return copy_method(channel, at, data);
    case ANY_COMPUTE:
        return compute_method(channel, at, data);
    default:
        if (!object)
            channel_fail(channel);
        return !object;
    }
}

/* True: an immediate method, something came of which. */
static bool begin(struct gpu_channel *channel, struct ring_entry *entry, uint32_t word)
{
    struct push *push = channel->push;
    uint32_t kind = word >> 29, subchannel = word >> 13 & 7, at = (word & 0xfff) * 4;

    push->header.subchannel = subchannel;
    push->header.method = at;
    push->header.left = word >> 16 & 0x1fff;
    push->header.once = kind == KIND_ONCE;
    push->header.stays = kind == KIND_SAME;
    switch (kind) {
    case KIND_INCREASING:
    case KIND_SAME:
    case KIND_ONCE:
        return false;
    case KIND_IMMEDIATE:
        push->header.left = 0;
        return method(channel, subchannel, at, word >> 16 & 0x1fff);
    case KIND_OLD:
    case KIND_OLD_SAME: /* of a subdevice mask: nothing */
        push->header.left = word >> 16 & 3 ? 0 : word >> 18 & 0x7ff;
        push->header.method = word & 0x1ffc;
        push->header.stays = kind == KIND_OLD_SAME;
        return false;
    case KIND_END:
        push->header.left = 0;
        entry->count = 0;
        return false;
    default:
        channel_fail(channel);
        return true;
    }
}

static bool one_word(struct gpu_channel *channel, struct ring_entry *entry, uint32_t word)
{
    struct push *push = channel->push;
    uint32_t at = push->header.method;

    if (!push->header.left)
        return begin(channel, entry, word);
    push->header.left--;
    if (!push->header.stays)
        push->header.method = (at + 4) & (METHODS * 4 - 1);
    push->header.stays |= push->header.once;
    return method(channel, push->header.subchannel, at, word);
}

/* What the last launch or copy left to do. */
static bool follow_up(struct gpu_channel *channel)
{
    struct push *push = channel->push;

    if (push->copying.lines) {
        copy_piece(channel);
        return true;
    }
    if (push->releases) {
        for (uint32_t i = 0; i < push->releases && !channel->failed; i++)
            release(channel, &push->release[i]);
        push->releases = 0;
        return true;
    }
    if (push->qmd)
        compute_launch(channel);
    return channel->executing;
}

void push_step(struct gpu_channel *channel, struct ring_entry *entry)
{
    struct view view;
    bool done = false;

    charge_front_end(channel, FETCH_NS);
    if (follow_up(channel) || channel->failed)
        return;
    if (!entry->count)
        return;
    if (!vaspace_view(channel->push->vaspace, entry->at, (uint64_t)entry->count * 4, &view) || !view.memory ||
        view.bytes < 4) {
        view_put(&view);
        channel_fail(channel);
        return;
    }
    for (uint64_t i = 0; i < view.bytes / 4 && i < WORDS_PER_STEP && !done && entry->count; i++) {
        const uint32_t *word = (const uint32_t *)(const void *)view_at(&view) + i;
        const struct header header = channel->push->header;
        const struct ring_entry before = *entry;

        entry->at += 4;
        entry->count--;
        done = one_word(channel, entry, __atomic_load_n(word, __ATOMIC_ACQUIRE));
        if (channel->faulted) {
            channel->push->header = header;
            *entry = before;
        }
    }
    view_put(&view);
}
