#include "chip.h"
#include "../../native_sched/nvidia/rm/channel.h"
#include <stddef.h>

#define ON(chip) (1u << CHIP_##chip)

static const struct {
    uint32_t class_id, since_major, since_minor, until_major, until_minor, chips;
} listed[] = {
#define LISTED(name, number, since_major, since_minor, until_major, until_minor, chips) \
    {number, since_major, since_minor, until_major, until_minor, chips},
#include "facts/class_lists.def"
};

static const struct {
    uint32_t major, minor;
} first[CHIPS] = {
#define CHIP(name, major, minor) [CHIP_##name] = {major, minor},
#include "facts/class_lists.def"
};

static bool before(uint32_t major, uint32_t minor, uint32_t other_major, uint32_t other_minor)
{
    return major < other_major || (major == other_major && minor < other_minor);
}

bool chip_is_known(enum chip chip, uint32_t major, uint32_t minor, uint32_t *first_major,
                   uint32_t *first_minor)
{
    *first_major = first[chip].major;
    *first_minor = first[chip].minor;
    return !before(major, minor, *first_major, *first_minor);
}

uint32_t chip_class(enum chip chip, uint32_t major, uint32_t minor, uint32_t i)
{
    for (size_t at = 0; at < sizeof listed / sizeof listed[0]; at++) {
        if (!(listed[at].chips & 1u << chip) ||
            before(major, minor, listed[at].since_major, listed[at].since_minor) ||
            (listed[at].until_major && !before(major, minor, listed[at].until_major, listed[at].until_minor)))
            continue;
        if (!i--)
            return listed[at].class_id;
    }
    return 0;
}

bool chip_lists(enum chip chip, uint32_t major, uint32_t minor, uint32_t class_id)
{
    uint32_t found;

    for (uint32_t i = 0; (found = chip_class(chip, major, minor, i)); i++)
        if (found == class_id)
            return true;
    return false;
}

/* RM numbers the engines of a kind one after the other, but for those that came last. */
bool chip_has_video(enum chip chip, uint32_t engine_type)
{
    static const struct {
        uint32_t nvdec, nvenc, nvjpg, ofa;
    } engines[CHIPS] = {
#define VIDEO(name, nvdec, nvenc, nvjpg, ofa) [CHIP_##name] = {nvdec, nvenc, nvjpg, ofa},
#include "facts/class_lists.def"
    };
    enum { FOURTH = 4, SECOND = 2 };

    switch (engine_type) {
    case RM_ENGINE_NVENC3:
        return engines[chip].nvenc >= FOURTH;
    case RM_ENGINE_OFA1:
        return engines[chip].ofa >= SECOND;
    default:
        return engine_type - RM_ENGINE_NVDEC0 < engines[chip].nvdec ||
               (rm_is_video_engine(engine_type) && engine_type - RM_ENGINE_NVENC0 < engines[chip].nvenc) ||
               engine_type - RM_ENGINE_NVJPG0 < engines[chip].nvjpg ||
               (engine_type == RM_ENGINE_OFA0 && engines[chip].ofa);
    }
}
