/* The memory account of one tenant on one card. Pure: no locks, no syscalls; the caller serialises.
 *
 * Invariant: used_bytes + reserved_bytes <= cap_bytes after every successful call. A reservation is taken
 * before the driver is asked and committed with what the driver really gave, so that two racing allocations
 * can never both fit into the last free byte. */
#ifndef MGPU_LEDGER_H
#define MGPU_LEDGER_H
#include "card_memory.h"
#include <stdbool.h>
#include <stdint.h>

struct ledger {
    uint64_t cap_bytes;
    uint64_t used_bytes;      /* committed: the driver holds it */
    uint64_t reserved_bytes;  /* asked of the driver, answer outstanding */
    uint64_t peak_bytes;      /* highest used + reserved ever */
    struct card_memory *card; /* NULL: its cap alone decides */
    enum memory_kind kind;
    uint64_t demanded_bytes; /* online: asked for by its calls that wait, all together */
    bool closed;             /* it is being evicted, or is evicted, and gets nothing but its room */
    uint64_t room_bytes;     /* reserved for its move, its cap meanwhile where that is less; 0: none */
};

/* Sets bytes aside. -ENOMEM when that would pass the cap, or what the card has for a reclaimable tenant;
 * -EAGAIN for an online one when it would take the room of a restoration. Nothing changes then. */
int ledger_reserve(struct ledger *l, uint64_t bytes);

/* Turns a reservation into a charge of `actual` bytes; 0 releases it. -ENOMEM: `actual` is more than was
 * reserved and the surplus does not fit. Then nothing is charged, and the caller must free the object. */
int ledger_commit(struct ledger *l, uint64_t reserved, uint64_t actual);

/* A charge for memory that exists already, even beyond the cap. */
void ledger_charge(struct ledger *l, uint64_t bytes);

/* Ends a charge made by ledger_commit or ledger_charge. */
void ledger_release(struct ledger *l, uint64_t bytes);

/* What an allocation may still take. */
uint64_t ledger_free_bytes(const struct ledger *l);

/* What others hold of the card and lose when this one asks for it. */
uint64_t ledger_gives_way_bytes(const struct ledger *l);

/* The bytes that its waiting calls can get: together no more than its cap leaves, however much each asks for.
 */
uint64_t ledger_demand_bytes(const struct ledger *l);

void ledger_set_cap(struct ledger *l, uint64_t cap_bytes);

/* From now on the ledger's part of the card is that of such a tenant; card NULL: it has none. */
void ledger_join(struct ledger *l, struct card_memory *card, enum memory_kind kind);

/* Whether it gets memory, and the room that is reserved for it (0: none). -ENOSPC when the room is not there;
 * nothing changes then. */
int ledger_reclaim(struct ledger *l, bool closed, uint64_t room_bytes);
#endif
