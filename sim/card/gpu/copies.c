/* A copy engine's methods. Between pitch layouts alone, without remapping, at virtual addresses: anything else stops the channel. */
#include "push.h"
#include <string.h>

enum {
    SET_SEMAPHORE_A = 0x240,
    SET_SEMAPHORE_B = 0x244,
    SET_SEMAPHORE_PAYLOAD = 0x248,
    LAUNCH_DMA = 0x300,
    OFFSET_IN_UPPER = 0x400,
    OFFSET_IN_LOWER = 0x404,
    OFFSET_OUT_UPPER = 0x408,
    OFFSET_OUT_LOWER = 0x40c,
    PITCH_IN = 0x410,
    PITCH_OUT = 0x414,
    LINE_LENGTH_IN = 0x418,
    LINE_COUNT = 0x41c,
};
enum {
    TRANSFER_MASK = 3,
    SEMAPHORE_SHIFT = 3,
    SEMAPHORE_MASK = 3,
    ONE_WORD = 1,
    FOUR_WORDS = 2,
    PITCH_TO_PITCH = 3 << 7,
    MULTI_LINE = 1 << 9,
    REMAP = 1 << 10,
    PHYSICAL = 3 << 12,
};
/* What is moved while the card's lock is held. */
enum { PIECE_BYTES = 4 << 20, PIECE_LINES = 1024 };

static uint64_t pair(const struct push *push, uint32_t upper)
{
    return (uint64_t)(push->copy[upper / 4] & 0x1ffffff) << 32 | push->copy[upper / 4 + 1];
}

static bool launch(struct gpu_channel *channel, uint32_t how)
{
    struct push *push = channel->push;
    uint32_t semaphore = how >> SEMAPHORE_SHIFT & SEMAPHORE_MASK;
    const struct release done = {
        .address = pair(push, SET_SEMAPHORE_A),
        .payload = push->copy[SET_SEMAPHORE_PAYLOAD / 4],
        .timed = semaphore == FOUR_WORDS,
    };

    if (how & TRANSFER_MASK) {
        if ((how & PITCH_TO_PITCH) != PITCH_TO_PITCH || how & (REMAP | PHYSICAL)) {
            channel_fail(channel);
            return true;
        }
        push->copying = (struct copying){
            .from = pair(push, OFFSET_IN_UPPER),
            .to = pair(push, OFFSET_OUT_UPPER),
            .line_bytes = push->copy[LINE_LENGTH_IN / 4],
            .lines = how & MULTI_LINE ? push->copy[LINE_COUNT / 4] : 1,
            .pitch_in = push->copy[PITCH_IN / 4],
            .pitch_out = push->copy[PITCH_OUT / 4],
        };
        if (!push->copying.line_bytes)
            push->copying.lines = 0;
    }
    if (semaphore == ONE_WORD || semaphore == FOUR_WORDS)
        push_release_later(push, &done);
    return true;
}

bool copy_method(struct gpu_channel *channel, uint32_t method, uint32_t data)
{
    if (method / 4 < METHODS / 4)
        channel->push->copy[method / 4] = data;
    return method == LAUNCH_DMA && launch(channel, data);
}

/* Bytes that were moved, as many as lie in one piece at both ends; 0: a fault. */
static uint64_t move(struct space *space, uint64_t to, uint64_t from, uint64_t bytes)
{
    struct view in, out;
    bool there = space_view(space, from, bytes, &in);

    if (!there)
        return 0;
    there = space_view(space, to, in.bytes, &out);
    if (there && in.memory && out.memory)
        memmove(view_at(&out), view_at(&in), out.bytes);
    bytes = there ? out.bytes : 0;
    view_put(&in);
    view_put(&out);
    return bytes;
}

void copy_piece(struct gpu_channel *channel)
{
    struct copying *c = &channel->push->copying;
    uint64_t moved = 0, n;
    uint32_t lines = 0;

    while (c->lines && moved < PIECE_BYTES && lines < PIECE_LINES) {
        n = c->line_bytes - c->at < PIECE_BYTES - moved ? c->line_bytes - c->at : PIECE_BYTES - moved;
        n = move(channel->push->space, c->to + c->at, c->from + c->at, n);
        if (!n) {
            channel_fail(channel);
            return;
        }
        moved += n;
        c->at += (uint32_t)n;
        if (c->at < c->line_bytes)
            continue;
        c->at = 0;
        c->from += c->pitch_in;
        c->to += c->pitch_out;
        c->lines--;
        lines++;
    }
    begin_kernel(channel, copy_ns(channel->group->gpu, moved));
}
