/* Who was on an engine when: a ring of what happened, in the order of its end. Under the card's lock. */
#ifndef MGPU_SIM_TIMELINE_H
#define MGPU_SIM_TIMELINE_H
#include <stdint.h>

enum { TIMELINE_ENTRIES = 1 << 20, TIMELINE_ANSWER_ENTRIES = 4096 };

enum timeline_kind { TIMELINE_RUN, TIMELINE_SWITCH, TIMELINE_ENABLE, TIMELINE_DISABLE };

struct timeline_entry {
    uint8_t kind, engine;
    uint16_t tsg;
    int32_t tgid;
    uint64_t start_ns, end_ns;
};

struct timeline {
    struct timeline_entry *ring; /* TIMELINE_ENTRIES, of which the kernel gives pages as they are written */
    uint64_t next;               /* number of the entry to come */
};

int timeline_start(struct timeline *timeline); /* negative errno */
void timeline_add(struct timeline *timeline, const struct timeline_entry *entry);
#endif
