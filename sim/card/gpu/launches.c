/* Compute's methods: launches, by descriptors in memory (QMD). A kernel computes nothing, takes its time, and releases the semaphores
 * that its descriptor names; then the launch follows that depends on it. Of descriptors two formats are known, Ampere's and Ada's
 * (clc6c0qmd.h, version 3) and Blackwell's (clcec0qmd.h, version 5): what others say beside being launched is not looked at. */
#include "../../../native_sched/rm/table.h"
#include "push.h"
#include <string.h>

enum { SEND_PCAS_A = 0x2b4, SEND_SIGNALING_PCAS_B = 0x2bc, SEND_SIGNALING_PCAS2_B = 0x2c0 };
enum { PCAS_B_SCHEDULE = 2 };
enum { QMD_BYTES = 384 };

/* Where fields begin, in bits. */
static const struct qmd_format {
    uint32_t first_class, last_class, bytes;
    uint32_t releases, enable, enable_step, wide, size, address[RELEASES];
    uint32_t next_enable, next;
} formats[] = {
    /* enable, wide and size: from the semaphore's own bits on */
    {AMPERE_COMPUTE_A, ADA_COMPUTE_A, 256, 3, 55, 0, 61, 62, {768, 896, 1664}, 512, 480},
    /* ... and here from the first one's on */
    {BLACKWELL_COMPUTE_A, BLACKWELL_COMPUTE_B, 384, 2, 288, 16, 300, 289, {480, 768}, 336, 384},
};
enum { PAYLOAD_FROM_ADDRESS = 64, ONE_WORD = 1, TWO_WORDS = 2 };

static uint32_t bits(const uint8_t *qmd, uint32_t from, uint32_t count)
{
    uint64_t word;

    memcpy(&word, qmd + from / 32 * 4, sizeof word);
    return (uint32_t)(word >> from % 32 & ((UINT64_C(1) << count) - 1));
}

static uint64_t at_bit(const uint8_t *qmd, uint32_t from, uint32_t upper_bits)
{
    return (uint64_t)bits(qmd, from + 32, upper_bits) << 32 | bits(qmd, from, 32);
}

static const struct qmd_format *format_of(uint32_t object)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (object >= formats[i].first_class && object <= formats[i].last_class)
            return &formats[i];
    return NULL;
}

static void note_releases(struct push *push, const struct qmd_format *f, const uint8_t *qmd)
{
    for (uint32_t i = 0; i < f->releases; i++) {
        uint32_t own = f->enable_step ? i * f->enable_step : f->address[i];
        uint32_t size = bits(qmd, f->size + own, 2);
        struct release r = {
            .address = at_bit(qmd, f->address[i], f->enable_step ? 25 : 8),
            .payload = at_bit(qmd, f->address[i] + PAYLOAD_FROM_ADDRESS, 32),
            .wide = bits(qmd, f->wide + own, 1) || size == TWO_WORDS,
            .timed = size != ONE_WORD && size != TWO_WORDS,
        };

        if (bits(qmd, f->enable + own, 1))
            push_release_later(push, &r);
    }
}

static bool read_qmd(struct push *push, uint64_t address, uint8_t *qmd, uint32_t bytes)
{
    struct view view;
    bool there = space_view(push->space, address, bytes, &view) && view.memory && view.bytes == bytes;

    if (there)
        memcpy(qmd, view_at(&view), bytes);
    view_put(&view);
    return there;
}

void compute_launch(struct gpu_channel *channel)
{
    struct push *push = channel->push;
    const struct qmd_format *f = format_of(push->object[push->header.subchannel]);
    _Alignas(8) uint8_t qmd[QMD_BYTES + 8] = {0};
    uint64_t address = push->qmd;

    push->qmd = 0;
    if (f) {
        if (!read_qmd(push, address, qmd, f->bytes)) {
            channel_fail(channel);
            return;
        }
        note_releases(push, f, qmd);
        if (bits(qmd, f->next_enable, 1))
            push->qmd = (uint64_t)bits(qmd, f->next, 32) << 8;
    }
    begin_kernel(channel, push->launch_ns);
}

static bool schedules(uint32_t method, uint32_t data)
{
    if (method == SEND_SIGNALING_PCAS_B)
        return data & PCAS_B_SCHEDULE;
    if (method != SEND_SIGNALING_PCAS2_B)
        return false;
    switch (data & 0xf) { /* PCAS_ACTION */
    case 2:               /* SCHEDULE, and what does something else before */
    case 3:
    case 9:
    case 10:
    case 11:
        return true;
    default:
        return false;
    }
}

bool compute_method(struct gpu_channel *channel, uint32_t method, uint32_t data)
{
    struct push *push = channel->push;

    if (method / 4 < METHODS / 4)
        push->compute[method / 4] = data;
    if (!schedules(method, data))
        return false;
    push->qmd = (uint64_t)push->compute[SEND_PCAS_A / 4] << 8;
    return true;
}
