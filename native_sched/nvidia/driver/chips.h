/* What is known of each chip: where its registers tell which channel group an engine executes, and whether
 * its host writes GP_GET back to USERD. Each fact is NVIDIA's, and rm/facts/chips.tsv
 * says from where; a chip without a row is blind. */
#ifndef MGPU_CHIPS_H
#define MGPU_CHIPS_H
#include <stdbool.h>
#include <stdint.h>

struct chip {
    const char *name;
    uint32_t architecture, implementation; /* as RM's ARCH_INFO reports them */
    /* The status words: from `status` on, `stride` bytes apart, so many. whole_card: of all engines, before
     * Ampere; else of each runlist's, from its base. */
    bool whole_card;
    uint32_t status, stride, words;
    uint32_t loads;     /* the context status while a context is loaded */
    bool has_get;       /* GP_GET */
    const char *header; /* of NVIDIA's: this chip's, or one's that RM has in the same variants */
};

/* NULL: nothing is known of it. */
const struct chip *chip_find(uint32_t architecture, uint32_t implementation);
/* In order; NULL: there are no more. */
const struct chip *chip_at(uint32_t i);
/* True if USERD of such a channel has GP_GET. A chip of NULL is unknown, so the class alone tells. An older
 * class on Blackwell is the same hardware, without it. */
bool chip_shows_get(const struct chip *chip, uint32_t channel_class);
#endif
