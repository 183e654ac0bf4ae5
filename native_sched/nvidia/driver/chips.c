#include "chips.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include <stddef.h>

static const struct chip chips[] = {
#define WHOLE_CARD(name, architecture, implementation, words, header) \
    {name, architecture, implementation, true, 0x2640, 8, words, 5, true, header},
#define RUNLISTS(name, architecture, implementation, status, words, has_get, header) \
    {name, architecture, implementation, false, status, 64, words, 6, has_get, header},
#include "chips.def"
};

const struct chip *chip_at(uint32_t i)
{
    return i < sizeof(chips) / sizeof(*chips) ? &chips[i] : NULL;
}

const struct chip *chip_find(uint32_t architecture, uint32_t implementation)
{
    for (size_t i = 0; i < sizeof(chips) / sizeof(*chips); i++)
        if (chips[i].architecture == architecture && chips[i].implementation == implementation)
            return &chips[i];
    return NULL;
}

/* By the classes' own Control structs (rm/facts/userd.tsv). */
static bool class_has_get(uint32_t channel_class)
{
    return channel_class == VOLTA_CHANNEL_GPFIFO_A || channel_class == TURING_CHANNEL_GPFIFO_A ||
           channel_class == AMPERE_CHANNEL_GPFIFO_A || channel_class == HOPPER_CHANNEL_GPFIFO_A;
}

bool chip_shows_get(const struct chip *chip, uint32_t channel_class)
{
    return (!chip || chip->has_get) && class_has_get(channel_class);
}
