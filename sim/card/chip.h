/* What a kind of chip is to the driver: the classes of its engines. */
#ifndef MGPU_SIM_CHIP_H
#define MGPU_SIM_CHIP_H
#include <stdbool.h>
#include <stdint.h>

enum chip {
#define CHIP(name, major, minor) CHIP_##name,
#include "facts/class_lists.def"
    CHIPS,
};

/* Whether a driver of that version knows the chip; the first that does in *first_major and *first_minor. */
bool chip_is_known(enum chip chip, uint32_t major, uint32_t minor, uint32_t *first_major,
                   uint32_t *first_minor);
/* The i-th class of its list; 0: it has no others. */
uint32_t chip_class(enum chip chip, uint32_t major, uint32_t minor, uint32_t i);
/* Whether the chip has that engine of video, by RM's number. */
bool chip_has_video(enum chip chip, uint32_t engine_type);
bool chip_lists(enum chip chip, uint32_t major, uint32_t minor, uint32_t class_id);
#endif
