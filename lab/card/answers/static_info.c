/* What the GSP says of the whole card. */
#include "../../../native_sched/nvidia/rm/rm_abi.h"
#include "table.h"
#include <stdio.h>
#include <string.h>

/* The GSP's own objects, that RM asks by. */
enum { CLIENT = 0xc1e00001, DEVICE = 0xabcd0080, SUBDEVICE = 0xabcd2080 };
enum { GID_BYTES = 16, PERFORMANCE = 10, RAM_TYPE = 0xf, COMPRESSED_PAGE_SHIFT = 18 };
enum {
    FAULT_BUFFER_BYTES = 0x100000,
    SHADOW_METADATA_BYTES = 0x1000,
    USERMODE_AT = 0xbb0000,
    TIMER_AT = 0x9000
};

static void put_region(struct asked *asked, uint32_t i, uint64_t base, uint64_t end, bool reserved)
{
    const uint32_t *at = asked->card->layout->value;
    uint64_t to = (uint64_t)at[AT_static_regions] + at[AT_region_first] + (uint64_t)i * at[AT_region_bytes];

    answer_put(asked, to, base, 8);
    answer_put(asked, to + 8, end - 1, 8);
    answer_put(asked, to + 16, reserved ? end - base : 0, 8);
    answer_put(asked, to + at[AT_region_performance], reserved ? 0 : PERFORMANCE, 4);
    answer_put(asked, to + at[AT_region_compressed], 1, 1);
    answer_put(asked, to + at[AT_region_iso], 1, 1);
}

static void put_text(struct asked *asked, uint64_t at, const char *text)
{
    for (; *text; text++, at++)
        answer_put(asked, at, (uint8_t)*text, 1);
}

static uint8_t uuid_byte(const struct asked *asked, uint32_t i)
{
    return i == GID_BYTES - 1 ? (uint8_t)asked->card->slot : (uint8_t)(0x11 * (i % 4 + 1));
}

static void put_uuid(struct asked *asked, uint32_t length_at, uint32_t at)
{
    answer_put(asked, length_at, GID_BYTES, 4);
    for (uint32_t i = 0; i < GID_BYTES; i++)
        answer_put(asked, at + i, uuid_byte(asked, i), 1);
}

/* 535 asks for it again, as bytes or, for a caller who wants that, as text. */
uint32_t answer_gid(struct asked *asked)
{
    enum { FLAGS_AT = 4, LENGTH_AT = 8, DATA_AT = 12, AS_TEXT = 0, AS_BYTES = 2 };
    char text[sizeof "GPU-01234567-0123-0123-0123-0123456789ab"] = "GPU-";
    int length = (int)strlen(text);
    uint32_t flags = (uint32_t)answer_word(asked, FLAGS_AT);

    if (flags != AS_BYTES && flags != AS_TEXT)
        return NV_ERR_NOT_SUPPORTED;
    put_uuid(asked, LENGTH_AT, DATA_AT);
    if (flags == AS_BYTES)
        return 0;
    for (uint32_t i = 0; i < GID_BYTES; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%02x",
                           i >= 4 && i <= 10 && i % 2 == 0 ? "-" : "", uuid_byte(asked, i));
    answer_put(asked, LENGTH_AT, sizeof text, 4);
    put_text(asked, DATA_AT, text);
    answer_put(asked, DATA_AT + sizeof text - 1, 0, 1);
    return 0;
}

uint32_t answer_static_info(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;
    const struct chip *chip = asked->card->chip;
    uint64_t memory = physical_video_bytes(asked->card->physical), reserved = (uint64_t)RESERVED_MIB * MIB;
    uint64_t caps = engine_caps(asked->card->layout);

    answer_zero(asked);
    put_uuid(asked, at[AT_static_gid_length], at[AT_static_gid]);
    answer_put(asked, at[AT_static_regions], 2, 4);
    put_region(asked, 0, 0, memory - reserved, false);
    put_region(asked, 1, memory - reserved, memory, true);
    answer_put(asked, at[AT_static_engines], caps, 4);
    answer_put(asked, at[AT_static_engines] + 4, caps >> 32, 4);
    answer_put(asked, at[AT_static_fb_length], memory, 8);
    answer_put(asked, at[AT_static_fbio_mask], 0xff, 4);
    answer_put(asked, at[AT_static_fbp_mask], 0xff, 4);
    answer_put(asked, at[AT_static_bus_width], chip->bus_bits, 4);
    answer_put(asked, at[AT_static_ram_type], RAM_TYPE, 4);
    answer_put(asked, at[AT_static_l2], (uint64_t)chip->l2_mib * MIB, 4);
    put_text(asked, at[AT_static_name], chip->name);
    put_text(asked, at[AT_static_short_name], chip->name);
    answer_put(asked, at[AT_static_is_tesla], 1, 1);
    answer_put(asked, at[AT_static_branding], at[AT_branding_tesla], 4);
    answer_put(asked, at[AT_static_bar1], memory - (uint64_t)BAR1_DIRECTORY_MIB * MIB, 8);
    answer_put(asked, at[AT_static_bar2], memory - (uint64_t)BAR2_DIRECTORY_MIB * MIB, 8);
    answer_put(asked, at[AT_static_client], CLIENT, 4);
    answer_put(asked, at[AT_static_device], DEVICE, 4);
    answer_put(asked, at[AT_static_subdevice], SUBDEVICE, 4);
    return 0;
}

uint32_t answer_memory_system(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;

    answer_put(asked, at[AT_memsys_no_backing], 1, 1);
    answer_put(asked, at[AT_memsys_l2], (uint64_t)asked->card->chip->l2_mib * MIB, 8);
    answer_put(asked, at[AT_memsys_page], 1u << COMPRESSED_PAGE_SHIFT, 4);
    answer_put(asked, at[AT_memsys_shift], COMPRESSED_PAGE_SHIFT, 4);
    answer_put(asked, at[AT_memsys_ram], RAM_TYPE, 4);
    answer_put(asked, at[AT_memsys_ltcs], asked->card->chip->ltcs, 4);
    answer_put(asked, at[AT_memsys_slices], 1, 4);
    return 0;
}

uint32_t answer_gmmu(struct asked *asked)
{
    static const uint32_t words[] = {FAULT_BUFFER_BYTES, SHADOW_METADATA_BYTES, FAULT_BUFFER_BYTES,
                                     SHADOW_METADATA_BYTES};

    for (uint32_t i = 0; i < 4; i++)
        answer_put(asked, 4 * i, words[i], 4);
    return 0;
}

uint32_t answer_bif(struct asked *asked)
{
    answer_put(asked, 0, 1, 1);
    return 0;
}

/* Where either is not, 535 writes no memory by BAR2. */
uint32_t answer_trust(struct asked *asked)
{
    answer_put(asked, 0, 1, 1);
    answer_put(asked, 1, 1, 1);
    return 0;
}

/* The driver trusts this: what is wrong here crashes it. */
uint32_t answer_bars(struct asked *asked)
{
    static const uint64_t bytes[] = {BAR0_BYTES, BAR1_BYTES, BAR3_BYTES};

    answer_zero(asked);
    answer_put(asked, 0, 3, 4);
    for (uint32_t i = 0; i < 3; i++) {
        answer_put(asked, 8 + 24 * i + 4, bytes[i] / MIB, 4);
        answer_put(asked, 8 + 24 * i + 8, bytes[i], 8);
    }
    return 0;
}

uint32_t answer_chip(struct asked *asked)
{
    const uint32_t *at = asked->card->layout->value;
    const struct chip *chip = asked->card->chip;

    answer_zero(asked);
    answer_put(asked, at[AT_chip_device], (uint32_t)chip->device << 16 | 0x10de, 4);
    answer_put(asked, at[AT_chip_device] + 4, (uint32_t)chip->subsystem << 16 | 0x10de, 4);
    answer_put(asked, at[AT_chip_device] + 8, 0xa1, 4);
    for (uint32_t i = 0; i < at[AT_chip_bases_count]; i++)
        answer_put(asked, at[AT_chip_bases] + 4 * i, UINT32_MAX, 4);
    answer_put(asked, at[AT_chip_bases] + 4 * at[AT_chip_base_timer], TIMER_AT, 4);
    answer_put(asked, at[AT_chip_bases] + 4 * at[AT_chip_base_master], 0, 4);
    answer_put(asked, at[AT_chip_bases] + 4 * at[AT_chip_base_usermode], USERMODE_AT, 4);
    return 0;
}
