#include "ledger.h"
#include <assert.h>
#include <errno.h>

static uint64_t held(const struct ledger *l)
{
    return l->used_bytes + l->reserved_bytes;
}

uint64_t ledger_free_bytes(const struct ledger *l)
{
    return held(l) >= l->cap_bytes ? 0 : l->cap_bytes - held(l);
}

static void note_peak(struct ledger *l)
{
    if (held(l) > l->peak_bytes)
        l->peak_bytes = held(l);
}

int ledger_reserve(struct ledger *l, uint64_t bytes)
{
    if (bytes > ledger_free_bytes(l))
        return -ENOMEM;
    l->reserved_bytes += bytes;
    note_peak(l);
    return 0;
}

int ledger_commit(struct ledger *l, uint64_t reserved, uint64_t actual)
{
    assert(l->reserved_bytes >= reserved);
    l->reserved_bytes -= reserved;
    if (actual > ledger_free_bytes(l))
        return -ENOMEM;
    l->used_bytes += actual;
    note_peak(l);
    return 0;
}

void ledger_charge(struct ledger *l, uint64_t bytes)
{
    l->used_bytes += bytes;
    note_peak(l);
}

void ledger_release(struct ledger *l, uint64_t bytes)
{
    assert(l->used_bytes >= bytes);
    l->used_bytes -= bytes;
}
