/* What compute's methods carry themselves: bytes for memory (LAUNCH_DMA and LOAD_INLINE_DATA, to pitch
 * layouts), descriptors of launches (LOAD_INLINE_QMD_DATA, which SEND_PCAS_A names as any other), and
 * semaphores. */
#include "push.h"
#include <string.h>

enum {
    REPORT_PAYLOAD_LOWER = 0x158,
    REPORT_PAYLOAD_UPPER = 0x15c,
    REPORT_ADDRESS_LOWER = 0x160,
    REPORT_ADDRESS_UPPER = 0x164,
    REPORT_EXECUTE = 0x168,
    LINE_LENGTH_IN = 0x180,
    LINE_COUNT = 0x184,
    OFFSET_OUT_UPPER = 0x188,
    OFFSET_OUT = 0x18c,
    PITCH_OUT = 0x190,
    LAUNCH_DMA = 0x1b0,
    LOAD_INLINE_DATA = 0x1b4,
    I2M_SEMAPHORE_A = 0x1dc,
    I2M_SEMAPHORE_B = 0x1e0,
    I2M_SEMAPHORE_C = 0x1e4,
    INLINE_QMD_ADDRESS_A = 0x318,
    INLINE_QMD_ADDRESS_B = 0x31c,
    LOAD_INLINE_QMD_DATA = 0x320,
    INLINE_QMD_END = LOAD_INLINE_QMD_DATA + 384,
    REPORT_SEMAPHORE_A = 0x1b00, /* before Ampere's second class, and after it too */
    REPORT_SEMAPHORE_D = 0x1b0c,
};
enum {
    DMA_PITCH = 1,
    DMA_REDUCTION = 2,
    DMA_COMPLETION = 3 << 4,
    DMA_RELEASES = 2 << 4,
    DMA_ONE_WORD = 1 << 12,
};
enum { REPORT_RELEASE = 0, REPORT_TRAP = 3, REPORT_REDUCTION = 1 << 6, REPORT_WIDE = 1 << 12 };
enum { REPORT_ONE_WORD = 1, REPORT_TWO_WORDS = 2 };
enum { D_REDUCTION = 1 << 3, D_ONE_WORD = 1 << 28 };

static uint64_t pair(uint32_t upper, uint32_t lower)
{
    return (uint64_t)upper << 32 | lower;
}

static bool is_mapped(struct gpu_channel *channel, uint64_t address)
{
    struct view view;
    bool mapped = vaspace_view(channel->push->vaspace, address, 1, &view);

    view_put(&view);
    return mapped;
}

static void put(struct gpu_channel *channel, uint64_t address, const void *data, uint32_t bytes)
{
    const uint8_t *from = data;
    struct view view;

    while (bytes && vaspace_view(channel->push->vaspace, address, bytes, &view)) {
        if (view.memory)
            memcpy(view_at(&view), from, view.bytes);
        view_put(&view);
        from += view.bytes;
        address += view.bytes;
        bytes -= (uint32_t)view.bytes;
    }
    if (bytes)
        channel_fail(channel);
}

static void begin(struct gpu_channel *channel, uint32_t how)
{
    struct push *push = channel->push;
    const uint32_t *asked = push->compute;

    if (!(how & DMA_PITCH) || how & DMA_REDUCTION) {
        channel_fail(channel);
        return;
    }
    push->loading = (struct loading){
        .to = pair(asked[OFFSET_OUT_UPPER / 4], asked[OFFSET_OUT / 4]),
        .line_bytes = asked[LINE_LENGTH_IN / 4],
        .lines = asked[LINE_LENGTH_IN / 4] ? asked[LINE_COUNT / 4] : 0,
        .pitch = asked[PITCH_OUT / 4],
        .releases = (how & DMA_COMPLETION) == DMA_RELEASES,
        .one_word = how & DMA_ONE_WORD,
    };
}

/* A line begins with a word of its own. */
static bool load(struct gpu_channel *channel, uint32_t data)
{
    struct push *push = channel->push;
    struct loading *l = &push->loading;
    uint32_t bytes = l->line_bytes - l->at < sizeof data ? l->line_bytes - l->at : (uint32_t)sizeof data;

    if (!l->lines) {
        channel_fail(channel);
        return true;
    }
    if (!is_mapped(channel, l->to + l->at)) {
        channel_fault(channel, l->to + l->at);
        return true;
    }
    put(channel, l->to + l->at, &data, bytes);
    l->at += bytes;
    if (l->at < l->line_bytes)
        return channel->failed;
    l->at = 0;
    l->to += l->pitch;
    if (--l->lines || !l->releases)
        return channel->failed;
    push_release_later(push, &(struct release){
                                 .address = pair(push->compute[I2M_SEMAPHORE_A / 4] & 0xff,
                                                 push->compute[I2M_SEMAPHORE_B / 4]),
                                 .payload = push->compute[I2M_SEMAPHORE_C / 4],
                                 .timed = !l->one_word,
                             });
    return true;
}

static bool report(struct gpu_channel *channel, uint32_t operation, bool reduces, const struct release *r)
{
    if (operation == REPORT_TRAP)
        return false;
    if (operation != REPORT_RELEASE || reduces)
        channel_fail(channel);
    else
        push_release_later(channel->push, r);
    return true;
}

static bool report_d(struct gpu_channel *channel, uint32_t how)
{
    const uint32_t *asked = channel->push->report;
    const struct release r = {pair(asked[0] & 0xff, asked[1]), asked[2], false, !(how & D_ONE_WORD)};

    return report(channel, how & 3, how & D_REDUCTION, &r);
}

static bool report_execute(struct gpu_channel *channel, uint32_t how)
{
    const uint32_t *asked = channel->push->compute;
    uint32_t size = how >> 3 & 3;
    const struct release r = {
        .address = pair(asked[REPORT_ADDRESS_UPPER / 4] & 0x1ffffff, asked[REPORT_ADDRESS_LOWER / 4]),
        .payload = pair(asked[REPORT_PAYLOAD_UPPER / 4], asked[REPORT_PAYLOAD_LOWER / 4]),
        .wide = how & REPORT_WIDE || size == REPORT_TWO_WORDS,
        .timed = size != REPORT_ONE_WORD && size != REPORT_TWO_WORDS,
    };

    return report(channel, how & 3, how & REPORT_REDUCTION, &r);
}

bool inline_method(struct gpu_channel *channel, uint32_t method, uint32_t data)
{
    struct push *push = channel->push;
    uint64_t qmd = pair(push->compute[INLINE_QMD_ADDRESS_A / 4], push->compute[INLINE_QMD_ADDRESS_B / 4])
                   << 8;

    if (method >= LOAD_INLINE_QMD_DATA && method < INLINE_QMD_END) {
        put(channel, qmd + (method - LOAD_INLINE_QMD_DATA), &data, sizeof data);
        return channel->failed;
    }
    if (method >= REPORT_SEMAPHORE_A && method < REPORT_SEMAPHORE_D)
        push->report[(method - REPORT_SEMAPHORE_A) / 4] = data;
    switch (method) {
    case LAUNCH_DMA:
        begin(channel, data);
        return channel->failed;
    case LOAD_INLINE_DATA:
        return load(channel, data);
    case REPORT_EXECUTE:
        return report_execute(channel, data);
    case REPORT_SEMAPHORE_D:
        return report_d(channel, data);
    default:
        return false;
    }
}
