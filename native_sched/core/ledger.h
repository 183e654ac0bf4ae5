/* The memory account of one tenant on one card. Pure: no locks, no syscalls; the caller serialises.
 *
 * Invariant: used_bytes + reserved_bytes <= cap_bytes after every successful call. A reservation is taken
 * before the driver is asked and committed with what the driver really gave, so that two racing allocations
 * can never both fit into the last free byte. */
#ifndef MGPU_LEDGER_H
#define MGPU_LEDGER_H
#include <stdint.h>

struct ledger {
    uint64_t cap_bytes;
    uint64_t used_bytes;     /* committed: the driver holds it */
    uint64_t reserved_bytes; /* asked of the driver, answer outstanding */
    uint64_t peak_bytes;     /* highest used + reserved ever */
};

/* Sets bytes aside. -ENOMEM when that would pass the cap; nothing changes then. */
int ledger_reserve(struct ledger *l, uint64_t bytes);

/* Turns a reservation into actual use; actual 0 gives it back. actual may differ from reserved: -ENOMEM
 * when the surplus does not fit, and then nothing at all is charged: the caller must free the object. */
int ledger_commit(struct ledger *l, uint64_t reserved, uint64_t actual);

/* A charge for memory that exists already, even beyond the cap. */
void ledger_charge(struct ledger *l, uint64_t bytes);

/* Ends a charge made by ledger_commit or ledger_charge. */
void ledger_release(struct ledger *l, uint64_t bytes);

/* What an allocation may still take. */
uint64_t ledger_free_bytes(const struct ledger *l);
#endif
