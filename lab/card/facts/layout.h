/* Where things lie in the structures of one version of the driver: facts, not code (names.def). */
#ifndef MGPU_LAB_LAYOUT_H
#define MGPU_LAB_LAYOUT_H
#include <stdint.h>

enum layout_name {
#define NAMED(name, asked) AT_##name,
#include "names.def"
#undef NAMED
    LAYOUT_NAMES
};

struct layout {
    const char *version;
    uint32_t value[LAYOUT_NAMES];
};

/* NULL: that version's are not known. */
const struct layout *layout_of(const char *version);
/* The i-th that is known, or NULL. */
const struct layout *layout_known(uint32_t i);
#endif
