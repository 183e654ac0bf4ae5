/* A copy engine's methods: lines between surfaces, as they are or with components put together anew
 * (remapped) between pitch layouts. Remapping of blocks and reductions stop the channel, as do physical
 * addresses where there are none. */
#include "push.h"
#include <string.h>

enum {
    SET_SEMAPHORE_A = 0x240,
    SET_SEMAPHORE_PAYLOAD = 0x248,
    SET_SEMAPHORE_PAYLOAD_UPPER = 0x24c,
    SET_SRC_PHYS_MODE = 0x260,
    SET_DST_PHYS_MODE = 0x264,
    LAUNCH_DMA = 0x300,
    OFFSET_IN = 0x400,
    OFFSET_OUT = 0x408,
    PITCH_IN = 0x410,
    PITCH_OUT = 0x414,
    LINE_LENGTH_IN = 0x418,
    LINE_COUNT = 0x41c,
    SET_REMAP_CONST_A = 0x700,
    SET_REMAP_CONST_B = 0x704,
    SET_REMAP_COMPONENTS = 0x708,
    SET_DST_BLOCK_SIZE = 0x70c, /* of a surface; width, height, depth and layer follow */
    SET_DST_ORIGIN = 0x720,
    SET_SRC_BLOCK_SIZE = 0x728,
    SET_SRC_ORIGIN = 0x73c,
    SRC_ORIGIN_X = 0x744,
    DST_ORIGIN_X = 0x74c,
};
enum { BLOCK_SIZE, WIDTH, HEIGHT, DEPTH, LAYER };
enum {
    TRANSFER_MASK = 3,
    PIPELINED = 1,
    NON_PIPELINED = 2,
    SEMAPHORE_SHIFT = 3,
    SEMAPHORE_MASK = 3,
    ONE_WORD = 1,
    FOUR_WORDS = 2,
    IN_PITCH = 1 << 7,
    OUT_PITCH = 1 << 8,
    MULTI_LINE = 1 << 9,
    REMAP = 1 << 10,
    IN_PHYSICAL = 1 << 12,
    OUT_PHYSICAL = 1 << 13,
    REDUCTION = 1 << 19,
    SCRUB = 1 << 23,        /* from Hopper on: zeros, whatever is there */
    WIDE_PAYLOAD = 1 << 27, /* from Hopper on */
};
enum { GOB_WIDE = 0, GOB_HEIGHT_8 = 1, BLOCK_LOG2_MAX = 5 };
enum { CONST_A = 4, NO_WRITE = 6, SCRUBBED_BYTES = 16 };
enum { PHYS_MODE_HOST = 3 }; /* coherent or not; 0: the card's own */
/* What is moved while the card's lock is held. */
enum { PIECE_BYTES = 4 << 20, PIECE_RUNS = 1 << 13, REMAP_BYTES = 4096 };

static uint64_t pair(const struct push *push, uint32_t upper)
{
    return (uint64_t)(push->copy[upper / 4] & 0x1ffffff) << 32 | push->copy[upper / 4 + 1];
}

/* False: its blocks are of a kind that there is not. */
static bool surface_of(struct surface *s, const struct push *push, bool pitch, uint32_t offset,
                       uint32_t pitch_at, uint32_t blocks_at, uint32_t origin)
{
    const uint32_t *asked = &push->copy[blocks_at / 4];
    uint32_t size = asked[BLOCK_SIZE];

    *s = (struct surface){.base = pair(push, offset), .pitch = push->copy[pitch_at / 4], .blocks = !pitch};
    if (pitch)
        return true;
    s->lines_log2 = size >> 4 & 0xf;
    s->layers_log2 = size >> 8 & 0xf;
    s->width = asked[WIDTH];
    s->height = asked[HEIGHT];
    s->layer = asked[LAYER];
    s->x = push->copy[origin / 4];
    s->y = push->copy[origin / 4 + 1];
    return (size & 0xf) == GOB_WIDE && size >> 12 == GOB_HEIGHT_8 && s->lines_log2 <= BLOCK_LOG2_MAX &&
           s->layers_log2 <= BLOCK_LOG2_MAX;
}

static struct remap remap_of(const struct push *push)
{
    uint32_t asked = push->copy[SET_REMAP_COMPONENTS / 4];

    return (struct remap){
        .constant = {push->copy[SET_REMAP_CONST_A / 4], push->copy[SET_REMAP_CONST_B / 4]},
        .select = asked & 0xffff,
        .bytes = (asked >> 16 & 3) + 1,
        .in = (asked >> 20 & 3) + 1,
        .out = (asked >> 24 & 3) + 1,
    };
}

static bool begin(struct push *push, uint32_t how)
{
    struct copying *c = &push->copying;
    uint32_t type = how & TRANSFER_MASK;

    if (type != PIPELINED && type != NON_PIPELINED)
        return false;
    *c = (struct copying){
        .line_length = push->copy[LINE_LENGTH_IN / 4],
        .lines = how & MULTI_LINE ? push->copy[LINE_COUNT / 4] : 1,
    };
    if (how & REMAP)
        c->remap = remap_of(push);
    if (how & SCRUB) {
        if (c->line_length % SCRUBBED_BYTES)
            return false;
        c->line_length /= SCRUBBED_BYTES;
        c->remap = (struct remap){.select = 0x1111 * CONST_A, .bytes = 4, .in = 1, .out = 4};
    }
    if (!c->line_length)
        c->lines = 0;
    if (!surface_of(&c->from, push, how & IN_PITCH, OFFSET_IN, PITCH_IN, SET_SRC_BLOCK_SIZE, SRC_ORIGIN_X) ||
        !surface_of(&c->to, push, how & OUT_PITCH, OFFSET_OUT, PITCH_OUT, SET_DST_BLOCK_SIZE, DST_ORIGIN_X))
        return false;
    if (how & IN_PHYSICAL)
        c->from.target = push->copy[SET_SRC_PHYS_MODE / 4] & PHYS_MODE_HOST ? SPACE_HOST : SPACE_VIDEO;
    if (how & OUT_PHYSICAL)
        c->to.target = push->copy[SET_DST_PHYS_MODE / 4] & PHYS_MODE_HOST ? SPACE_HOST : SPACE_VIDEO;
    return !(c->remap.bytes && (c->from.blocks || c->to.blocks));
}

static void launch(struct gpu_channel *channel, uint32_t how)
{
    struct push *push = channel->push;
    uint32_t semaphore = how >> SEMAPHORE_SHIFT & SEMAPHORE_MASK;
    const struct release done = {
        .address = pair(push, SET_SEMAPHORE_A),
        .payload = (uint64_t)push->copy[SET_SEMAPHORE_PAYLOAD_UPPER / 4] << 32 |
                   push->copy[SET_SEMAPHORE_PAYLOAD / 4],
        .wide = how & WIDE_PAYLOAD,
        .timed = semaphore == FOUR_WORDS,
    };

    if (how & REDUCTION || semaphore > FOUR_WORDS || (how & TRANSFER_MASK && !begin(push, how)))
        channel_fail(channel);
    else if (semaphore)
        push_release_later(push, &done);
}

bool copy_method(struct gpu_channel *channel, uint32_t method, uint32_t data)
{
    uint32_t *asked = channel->push->copy;

    if (method / 4 < METHODS / 4)
        asked[method / 4] = data;
    if (method == SET_SRC_ORIGIN || method == SET_DST_ORIGIN) {
        uint32_t origin = method == SET_SRC_ORIGIN ? SRC_ORIGIN_X : DST_ORIGIN_X;

        asked[origin / 4] = data & 0xffff;
        asked[origin / 4 + 1] = data >> 16;
    }
    if (method == LAUNCH_DMA)
        launch(channel, data);
    return method == LAUNCH_DMA;
}

/* Bytes that were moved, as many as lie in one piece at both ends; 0: a fault. */
static uint64_t move(struct vaspace *vaspace, const struct copying *c, uint64_t to, uint64_t from,
                     uint64_t bytes)
{
    struct view in, out;
    bool there = vaspace_view_target(vaspace, c->from.target, from, bytes, &in);

    if (!there)
        return 0;
    there = vaspace_view_target(vaspace, c->to.target, to, in.bytes, &out);
    if (there && in.memory && out.memory)
        memmove(view_at(&out), view_at(&in), out.bytes);
    bytes = there ? out.bytes : 0;
    view_put(&in);
    view_put(&out);
    return bytes;
}

static uint64_t move_some(struct vaspace *vaspace, struct copying *c, uint64_t most)
{
    uint32_t in, out, n = c->line_length - c->at;
    uint64_t from = surface_at(&c->from, c->line, c->at, &in);
    uint64_t to = surface_at(&c->to, c->line, c->at, &out);
    uint64_t moved;

    n = n < in ? n : in;
    n = n < out ? n : out;
    moved = move(vaspace, c, to, from, n < most ? n : most);
    c->at += (uint32_t)moved;
    return moved;
}

/* Between memory of the card's and `buffer`. Without contents: zeros. */
static bool bring(struct vaspace *vaspace, enum vaspace_target target, uint64_t address, uint8_t *buffer,
                  uint32_t bytes, bool back)
{
    struct view view;

    while (bytes && vaspace_view_target(vaspace, target, address, bytes, &view)) {
        if (back && view.memory)
            memcpy(view_at(&view), buffer, view.bytes);
        else if (!back && view.memory)
            memcpy(buffer, view_at(&view), view.bytes);
        else if (!back)
            memset(buffer, 0, view.bytes);
        view_put(&view);
        buffer += view.bytes;
        address += view.bytes;
        bytes -= (uint32_t)view.bytes;
    }
    return !bytes;
}

/* Whether one of the components that are written is as the selection from `low` to `high` says. */
static bool selects(const struct remap *r, uint32_t low, uint32_t high)
{
    for (uint32_t k = 0; k < r->out; k++)
        if ((r->select >> 4 * k & 7) >= low && (r->select >> 4 * k & 7) <= high)
            return true;
    return false;
}

static void put_together(const struct remap *r, uint8_t *to, const uint8_t *from)
{
    for (uint32_t k = 0; k < r->out; k++, to += r->bytes) {
        uint32_t of = r->select >> 4 * k & 7;

        if (of < CONST_A)
            memcpy(to, from + of * r->bytes, r->bytes);
        else if (of < NO_WRITE)
            memcpy(to, &r->constant[of - CONST_A], r->bytes);
    }
}

static uint64_t remap_some(struct vaspace *vaspace, struct copying *c)
{
    const struct remap *r = &c->remap;
    uint32_t in = r->bytes * r->in, out = r->bytes * r->out;
    uint32_t n = REMAP_BYTES / (in > out ? in : out), left = c->line_length - c->at;
    uint8_t from[REMAP_BYTES + 4 * 4] = {0}, to[REMAP_BYTES];
    uint32_t unused;
    uint64_t at = surface_at(&c->to, c->line, 0, &unused) + (uint64_t)c->at * out;

    n = n < left ? n : left;
    if (selects(r, 0, CONST_A - 1) &&
        !bring(vaspace, c->from.target, surface_at(&c->from, c->line, 0, &unused) + (uint64_t)c->at * in,
               from, n * in, false))
        return 0;
    if (selects(r, NO_WRITE, NO_WRITE + 1) && !bring(vaspace, c->to.target, at, to, n * out, false))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        put_together(r, to + i * out, from + i * in);
    if (!bring(vaspace, c->to.target, at, to, n * out, true))
        return 0;
    c->at += n;
    return (uint64_t)n * out;
}

void copy_piece(struct gpu_channel *channel)
{
    struct copying *c = &channel->push->copying;
    struct vaspace *vaspace = channel->push->vaspace;
    uint64_t moved = 0, n;

    for (uint32_t runs = 0; c->line < c->lines && moved < PIECE_BYTES && runs < PIECE_RUNS; runs++) {
        n = c->remap.bytes ? remap_some(vaspace, c) : move_some(vaspace, c, PIECE_BYTES - moved);
        if (!n) {
            channel_fail(channel);
            return;
        }
        moved += n;
        if (c->at < c->line_length)
            continue;
        c->at = 0;
        c->line++;
    }
    if (c->line == c->lines)
        c->lines = 0;
    begin_kernel(channel, copy_ns(channel->group->gpu, moved));
}
