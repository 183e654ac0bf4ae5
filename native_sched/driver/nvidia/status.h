/* Which channel group is on which engine, read from the card's registers: BAR0, mapped read-only. Nothing is
 * ever written.
 *
 * ENGINE_STATUS0 is 0x200 above each runlist's base (GA100 manual, dev_runlist): bits 11:0 the group, 15:13
 * the context status, 27:16 the group that comes next, 31 busy. No such manual exists for GH100: there a
 * value is taken only if it looks like a status. */
#ifndef MGPU_NVIDIA_STATUS_H
#define MGPU_NVIDIA_STATUS_H
#include "native_sched/driver/driver.h"
#include "client.h"

struct nvidia_status {
    const volatile uint8_t *bar;
    size_t bar_bytes;
    uint32_t at[ENGINES_MAX]; /* offsets of ENGINE_STATUS0 */
    uint64_t on[ENGINES_MAX]; /* as in struct engine_status */
    uint32_t engines;         /* 0: not available */
};

/* bar_path: the PCI device's resource0. Runlists that lie outside or answer with an error pattern are left
 * out. The number of engines, or a negative errno; -ENODATA: none is left. */
int nvidia_status_open(struct nvidia_status *s, const char *bar_path, const struct nvidia_runlist *runlist,
                       uint32_t runlists);
void nvidia_status_close(struct nvidia_status *s);

/* How many; 0: not available; -EIO: one of the engines cannot be read now, so nothing is known. */
int nvidia_status_read(const struct nvidia_status *s, struct engine_status *out);

/* False: not a status but the bus's pattern for an unreadable register. */
bool nvidia_status_decode(uint32_t word, struct engine_status *out);
#endif
