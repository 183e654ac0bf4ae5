/* The memory of one card over all of its tenants, kept where offline containers may hold memory that online
 * containers were granted (docs/reclaim.md). Each ledger that belongs to it takes a part:
 *
 *   online        what it holds: it was granted more, and asks for it when it likes
 *   kept          its cap: offline without the annotation, whose memory is its own
 *   reclaimable   what it holds
 *
 * or the room that is reserved for its restoration, where that is more.
 * A reclaimable tenant gets memory as long as all parts fit the card, the others by their caps alone. Ledgers
 * of different tenants change at the same time: so the members are atomic. */
#ifndef MGPU_CARD_MEMORY_H
#define MGPU_CARD_MEMORY_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum memory_kind { MEMORY_UNSHARED, MEMORY_ONLINE, MEMORY_KEPT, MEMORY_RECLAIMABLE };

struct card_memory {
    uint64_t total_bytes;
    _Atomic uint64_t taken_bytes;       /* the sum of all parts */
    _Atomic uint64_t used_bytes;        /* what they hold, whatever their parts */
    _Atomic uint64_t reclaimable_bytes; /* of them, what reclaimable tenants hold */
    _Atomic uint32_t demands;           /* such calls: while there are any, reclaimable tenants get nothing */
    _Atomic uint32_t restorations;      /* tenants with reserved room */
};

/* Takes the bytes if they fit the card. */
bool card_memory_take(struct card_memory *m, uint64_t bytes);
/* The bytes that no part has taken. */
uint64_t card_memory_left(const struct card_memory *m);

/* The bytes that the driver may lack although no tenant has them: its own memory, and what lies in pieces. */
uint64_t card_memory_unreported(const struct card_memory *m);
/* Whether such an allocation may fail for want of what tenants hold. */
bool card_memory_lacks(const struct card_memory *m, uint64_t bytes);
#endif
