/* Compute's methods: launches, by descriptors in memory (QMD). A kernel computes nothing, takes its time, and
 * releases the semaphores that its descriptor names; then the launch follows that depends on it. A descriptor
 * says which version it is, and each class takes two or three: those of clc3c0qmd.h (2), clc6c0qmd.h (3),
 * clcbc0qmd.h (4) and clcdc0qmd.h (5). Of any other version, and where it asks for what is not played here
 * (reductions, a second dependent, queues), the channel stops. */
#include "../../../native_sched/nvidia/rm/table.h"
#include "push.h"
#include <string.h>

enum { SEND_PCAS_A = 0x2b4, SEND_SIGNALING_PCAS_B = 0x2bc, SEND_SIGNALING_PCAS2_B = 0x2c0 };
enum { PCAS_B_SCHEDULE = 2 };
enum { QMD_SHORT_BYTES = 256, QMD_BYTES = 384 };

/* Where fields begin, in bits. */
static const struct qmd_format {
    uint32_t version, version_at, first_class, last_class, bytes;
    uint32_t releases, address[RELEASES], upper_bits, enable[RELEASES];
    uint32_t control[RELEASES], reduction, size, size_bits, wide; /* the three from there on; wide 0: never */
    uint32_t next_enable, next_action, second_enable, next;
} formats[] = {
    {.version = 5,
     .version_at = 468,
     .first_class = BLACKWELL_COMPUTE_A,
     .last_class = BLACKWELL_COMPUTE_B,
     .bytes = QMD_BYTES,
     .releases = 3,
     .address = {480, 768, 896},
     .upper_bits = 25,
     .enable = {288, 304, 320},
     .control = {288, 304, 320},
     .reduction = 4,
     .size = 1,
     .size_bits = 2,
     .wide = 12,
     .next_enable = 336,
     .next_action = 337,
     .second_enable = 344,
     .next = 384},
    {.version = 4,
     .version_at = 580,
     .first_class = HOPPER_COMPUTE_A,
     .last_class = BLACKWELL_COMPUTE_B,
     .bytes = QMD_BYTES,
     .releases = 3,
     .address = {640, 768, 896},
     .upper_bits = 25,
     .enable = {320, 336, 352},
     .control = {320, 336, 352},
     .reduction = 4,
     .size = 1,
     .size_bits = 2,
     .wide = 12,
     .next_enable = 368,
     .next_action = 369,
     .second_enable = 373,
     .next = 448},
    {.version = 3,
     .version_at = 580,
     .first_class = AMPERE_COMPUTE_A,
     .last_class = HOPPER_COMPUTE_A,
     .bytes = QMD_SHORT_BYTES,
     .releases = 3,
     .address = {768, 896, 1664},
     .upper_bits = 8,
     .enable = {823, 951, 1719},
     .control = {823, 951, 1719},
     .reduction = 3,
     .size = 7,
     .size_bits = 2,
     .wide = 6,
     .next_enable = 512,
     .next_action = 513,
     .second_enable = 517,
     .next = 480},
    {.version = 2,
     .version_at = 580,
     .first_class = VOLTA_COMPUTE_A,
     .last_class = ADA_COMPUTE_A,
     .bytes = QMD_SHORT_BYTES,
     .releases = 2,
     .address = {736, 832},
     .upper_bits = 8,
     .enable = {138, 139},
     .control = {794, 890},
     .reduction = 0,
     .size = 5,
     .size_bits = 1,
     .next_enable = 141,
     .next_action = 142,
     .second_enable = 146,
     .next = 480},
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

static const struct qmd_format *format_of(uint32_t object, const uint8_t *qmd)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (object >= formats[i].first_class && object <= formats[i].last_class &&
            bits(qmd, formats[i].version_at, 4) == formats[i].version)
            return &formats[i];
    return NULL;
}

static bool note_releases(struct push *push, const struct qmd_format *f, const uint8_t *qmd)
{
    for (uint32_t i = 0; i < f->releases; i++) {
        uint32_t size = bits(qmd, f->control[i] + f->size, f->size_bits);
        bool wide = f->wide && bits(qmd, f->control[i] + f->wide, 1);
        struct release r = {
            .address = at_bit(qmd, f->address[i], f->upper_bits),
            .payload = at_bit(qmd, f->address[i] + PAYLOAD_FROM_ADDRESS, f->wide ? 32 : 0),
            .wide = wide || size == TWO_WORDS,
            .timed = size != ONE_WORD && size != TWO_WORDS,
        };

        if (!bits(qmd, f->enable[i], 1))
            continue;
        if (bits(qmd, f->control[i] + f->reduction, 1))
            return false;
        push_release_later(push, &r);
    }
    return true;
}

/* Of the actions those with the lowest bit launch a grid: SCHEDULE, INVALIDATE_COPY_SCHEDULE. */
static bool note_next(struct push *push, const struct qmd_format *f, const uint8_t *qmd)
{
    if (bits(qmd, f->second_enable, 1))
        return false;
    if (!bits(qmd, f->next_enable, 1))
        return true;
    push->qmd = (uint64_t)bits(qmd, f->next, 32) << 8;
    return bits(qmd, f->next_action, 1);
}

static bool read_qmd(struct push *push, uint64_t address, uint8_t *qmd, uint32_t bytes)
{
    struct view view;
    bool there = vaspace_view(push->vaspace, address, bytes, &view) && view.memory && view.bytes == bytes;

    if (there)
        memcpy(qmd, view_at(&view), bytes);
    view_put(&view);
    return there;
}

static bool understood(struct push *push, uint64_t address)
{
    _Alignas(8) uint8_t qmd[QMD_BYTES + 8] = {0};
    const struct qmd_format *f;

    if (!read_qmd(push, address, qmd, QMD_SHORT_BYTES))
        return false;
    f = format_of(push->object[push->header.subchannel], qmd);
    return f && (f->bytes == QMD_SHORT_BYTES || read_qmd(push, address, qmd, f->bytes)) &&
           note_releases(push, f, qmd) && note_next(push, f, qmd);
}

void compute_launch(struct gpu_channel *channel)
{
    struct push *push = channel->push;
    uint64_t address = push->qmd;

    push->qmd = 0;
    if (understood(push, address))
        begin_kernel(channel, push->launch_ns);
    else
        channel_fail(channel);
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
    if (inline_method(channel, method, data))
        return true;
    if (!schedules(method, data))
        return false;
    push->qmd = (uint64_t)push->compute[SEND_PCAS_A / 4] << 8;
    return true;
}
