/* Which channel group is on which engine, read from the card's registers: BAR0, mapped read-only. Nothing is
 * ever written.
 *
 * A status word: bits 11:0 the group, 15:13 the context status, 27:16 the group that comes next, 31 busy
 * (NVIDIA's hw_fifo_gv100.h, hw_runlist_ga100.h, hw_runlist_gb20c.h). Before Ampere bits 12 and 28 say that
 * the numbers are those of groups. chips.h says where they are. */
#ifndef MGPU_REGISTERS_H
#define MGPU_REGISTERS_H
#include "chips.h"
#include "driver.h"

/* Engines whose groups are on one runlist, as RM names them. */
struct runlist {
    uint32_t base, count;
    uint64_t engines; /* as in struct engine_status */
};

struct registers {
    const volatile uint8_t *bar;
    size_t bytes;
    const struct chip *chip;
    uint32_t at[ENGINES_MAX]; /* of status words */
    uint64_t on[ENGINES_MAX]; /* as in struct engine_status */
    uint32_t engines;         /* 0: not available */
};

/* bar: BAR0, mapped; registers_close() unmaps it. Returns the number of engines, or a negative errno with the
 * BAR unmapped. -ENODATA: the place of an engine's status is not known, or does not look like one. A single
 * unseen engine would make its tenant look idle, so then none is read. */
int registers_open(struct registers *r, const void *bar, size_t bytes, const struct chip *chip,
                   const struct runlist *runlist, uint32_t runlists);
void registers_close(struct registers *r);

/* How many, of those of these engines; 0: not available; -EIO: one of the words is no status now, so nothing
 * is known. */
int registers_read(const struct registers *r, uint64_t engines, struct engine_status *out);

/* False: it does not look like a status. */
bool registers_decode(const struct chip *chip, uint32_t word, struct engine_status *out);
#endif
