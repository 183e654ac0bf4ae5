/* BAR0. A register that nothing is said of here is memory: it reads as it was written. */
#include "../../base/clock.h"
#include "gsp/gsp.h"
#include "parts.h"
#include "state/faults.h"
#include <string.h>
#include <unistd.h>

enum {
    PMC_BOOT_0 = 0x0,
    PMC_BOOT_42 = 0xa00,
    PTIMER_TIME_0 = 0x9400,
    PTIMER_TIME_1 = 0x9410,
    PTIMER_ALARM_MASK = 0x9430,
    FSP_BOOT_COMPLETE = 0x200bc,
    SECURE_TIME_0 = 0x118f54,
    SECURE_TIME_1 = 0x118f58,
    CONFIG_MIRROR = 0x88000,
    QUEUE_HEAD = 0x110c00,
    SECURE_SCRATCH_15 = 0x1180fc, /* AD10x: what cleared the memory says here that it is done */
    GFW_BOOT_PLM = 0x118128,
    GFW_BOOT = 0x118234,
    LOCAL_MEMORY_RANGE = 0x100ce0, /* before GA10x: what is in the next */
    USABLE_FB_MIB = 0x1183a4,
    PROM = 0x300000,
    PRAMIN = 0x700000,
    WINDOW_BYTES = 0x100000,
    FUSE_DEBUG_DISABLED = 0x82074c,
    FUSE_DEBUG_DISABLED_OLD = 0x2174c,
    FUSE_NO_DISPLAY = 0x820c04,
    FUSE_NO_DISPLAY_OLD = 0x21c04,
    VIRTUAL_TIME_0 = 0xb00080,
    VIRTUAL_TIME_1 = 0xb00084,
    VIRTUAL = 0xb80000,
    VIRTUAL_END = 0xb84000,
    ACCESS_COUNTERS = 0xb83110,
    FAULT_GET = 0xb83028,
    MMU_INVALIDATE = 0xb830b0,
    DOORBELL = 0xbb0090,
    OLD_DOORBELL = 0x90,
};
enum { QUEUE_HEADS = 8, TRIGGER = 1u << 31, BOOT_DONE = 0xff, ACCESS_COUNTER_ENTRIES = 0x2000 };

#define SCRUBBER_DONE (3u << 29)
enum { MAGNITUDE_SHIFT = 4, MAGNITUDE_MAX = 63 };

/* So many MiB as six bits and how far they are shifted; a size that has more bits becomes less. */
static uint32_t memory_range(uint32_t mib)
{
    uint32_t scale = 0;

    while (mib >> scale > MAGNITUDE_MAX)
        scale++;
    return mib >> scale << MAGNITUDE_SHIFT | scale;
}

void registers_start(struct card *card)
{
    static const struct {
        uint32_t at, value;
    } first[] = {
        {FUSE_NO_DISPLAY, 1},
        {FUSE_NO_DISPLAY_OLD, 1},
        {FUSE_DEBUG_DISABLED, 1},
        {FUSE_DEBUG_DISABLED_OLD, 1},
        {PTIMER_ALARM_MASK, UINT32_MAX},
        {GFW_BOOT, BOOT_DONE},
        {FSP_BOOT_COMPLETE, BOOT_DONE},
        {SECURE_SCRATCH_15, SCRUBBER_DONE},
        {GFW_BOOT_PLM, 0xff},
        {ACCESS_COUNTERS, ACCESS_COUNTER_ENTRIES},
    };
    uint32_t mib = (uint32_t)(physical_video_bytes(card->physical) / MIB);

    memset(card->reg, 0, BAR0_BYTES);
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        card->reg[first[i].at / 4] = first[i].value;
    card->reg[PMC_BOOT_0 / 4] = card->chip->boot_0;
    card->reg[PMC_BOOT_42 / 4] = card->chip->boot_42;
    card->reg[USABLE_FB_MIB / 4] = mib;
    card->reg[LOCAL_MEMORY_RANGE / 4] = memory_range(mib);
}

static void ring(const struct card *card)
{
    static const uint64_t one = 1;

    (void)!write(card->ring_fd, &one, sizeof one);
}

static bool is_queue_head(uint32_t at)
{
    return at >= QUEUE_HEAD && at < QUEUE_HEAD + QUEUE_HEADS;
}

static uint32_t read_one(struct card *card, uint32_t at)
{
    const struct falcon *falcon = is_queue_head(at) ? NULL : falcon_of(card, at);
    uint32_t value;

    if (falcon)
        return falcon_read(card, falcon, at - falcon->base);
    if (at >= VIRTUAL && at < VIRTUAL_END && interrupts_read(card, at - VIRTUAL, &value))
        return value;
    if (at >= CONFIG_MIRROR && at < CONFIG_MIRROR + CONFIG_BYTES) {
        memcpy(&value, &card->config[at - CONFIG_MIRROR], sizeof value);
        return value;
    }
    if (card->chip->fsp && fsp_read(card, at, &value))
        return value;
    switch (at) {
    case PTIMER_TIME_0:
    case VIRTUAL_TIME_0:
    case SECURE_TIME_0:
        return (uint32_t)monotonic_ns() & ~31u;
    case PTIMER_TIME_1:
    case VIRTUAL_TIME_1:
    case SECURE_TIME_1:
        return (uint32_t)(monotonic_ns() >> 32);
    default:
        return card->reg[at / 4];
    }
}

static void write_one(struct card *card, uint32_t at, uint32_t value)
{
    struct falcon *falcon = falcon_of(card, at);

    if (is_queue_head(at)) {
        gsp_look(card->gsp);
        return;
    }
    if (falcon) {
        falcon_write(card, falcon, at - falcon->base, value);
        return;
    }
    if (at >= VIRTUAL && at < VIRTUAL_END && interrupts_write(card, at - VIRTUAL, value))
        return;
    if (card->chip->fsp && fsp_write(card, at, value))
        return;
    switch (at) {
    case DOORBELL:
    case OLD_DOORBELL:
        ring(card);
        break;
    case FAULT_GET:
        card->reg[at / 4] = value;
        faults_taken(card);
        break;
    case MMU_INVALIDATE: /* tables are walked anew for every access, so it is done */
        card->reg[at / 4] = value & ~(uint32_t)TRIGGER;
        break;
    default:
        card->reg[at / 4] = value;
    }
}

void registers_read(struct card *card, uint64_t offset, uint8_t *to, uint32_t bytes)
{
    if (offset >= PROM && offset < PROM + WINDOW_BYTES) {
        for (uint32_t i = 0; i < bytes; i++)
            to[i] = offset - PROM + i < ROM_BYTES ? card->rom[offset - PROM + i] : 0xff;
        return;
    }
    if (offset >= PRAMIN && offset < PRAMIN + WINDOW_BYTES) {
        pramin_read(card, offset, to, bytes);
        return;
    }
    while (bytes) {
        uint32_t at = (uint32_t)offset & ~3u, inside = (uint32_t)offset & 3, n = 4 - inside;
        uint32_t value = read_one(card, at);

        n = n < bytes ? n : bytes;
        memcpy(to, (uint8_t *)&value + inside, n);
        if (card->traced)
            card_log(card, "R %06x %08x", at, value);
        to += n;
        offset += n;
        bytes -= n;
    }
}

void registers_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes)
{
    if (offset >= PRAMIN && offset < PRAMIN + WINDOW_BYTES) {
        pramin_write(card, offset, from, bytes);
        return;
    }
    while (bytes) {
        uint32_t at = (uint32_t)offset & ~3u, inside = (uint32_t)offset & 3, n = 4 - inside;
        uint32_t value = inside || bytes < 4 ? read_one(card, at) : 0;

        n = n < bytes ? n : bytes;
        memcpy((uint8_t *)&value + inside, from, n);
        if (card->traced)
            card_log(card, "W %06x %08x", at, value);
        write_one(card, at, value);
        from += n;
        offset += n;
        bytes -= n;
    }
}
