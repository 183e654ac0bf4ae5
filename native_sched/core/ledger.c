#include "ledger.h"
#include <assert.h>
#include <errno.h>

static uint64_t held(const struct ledger *l)
{
    return l->used_bytes + l->reserved_bytes;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* While the tenant is moved, its cap is the room for the move, which holds the staging buffers too. */
static uint64_t under_cap(const struct ledger *l)
{
    uint64_t cap = l->closed ? larger(l->cap_bytes, l->room_bytes) : l->cap_bytes;

    return held(l) >= cap ? 0 : cap - held(l);
}

/* Its part of the card. */
static uint64_t part(const struct ledger *l)
{
    switch (l->kind) {
    case MEMORY_KEPT:
        return larger(held(l), l->cap_bytes);
    default:
        return larger(held(l), l->room_bytes);
    }
}

struct before {
    uint64_t part, held, used;
};

static struct before before(const struct ledger *l)
{
    return (struct before){part(l), held(l), l->used_bytes};
}

/* The card follows. Differences wrap around. */
static void follow(struct ledger *l, struct before was)
{
    if (!l->card)
        return;
    atomic_fetch_add(&l->card->taken_bytes, part(l) - was.part);
    atomic_fetch_add(&l->card->used_bytes, l->used_bytes - was.used);
    if (l->kind == MEMORY_RECLAIMABLE)
        atomic_fetch_add(&l->card->reclaimable_bytes, held(l) - was.held);
}

/* The bytes that a reclaimable one gets beyond the room that is reserved for it: a driver may take somewhat
 * more for a restoration than it gave back. */
static uint64_t card_leaves(const struct ledger *l)
{
    return atomic_load(&l->card->demands) ? 0 : card_memory_left(l->card);
}

static bool is_shut(const struct ledger *l)
{
    return l->closed && !l->room_bytes;
}

uint64_t ledger_free_bytes(const struct ledger *l)
{
    uint64_t free = is_shut(l) ? 0 : under_cap(l), left;

    if (!l->card || l->kind != MEMORY_RECLAIMABLE)
        return free;
    left = part(l) - held(l) + card_leaves(l);
    return left < free ? left : free;
}

uint64_t ledger_gives_way_bytes(const struct ledger *l)
{
    return l->card && l->kind == MEMORY_ONLINE ? atomic_load(&l->card->reclaimable_bytes) : 0;
}

static void note_peak(struct ledger *l)
{
    if (held(l) > l->peak_bytes)
        l->peak_bytes = held(l);
}

static int reserve_on_card(struct ledger *l, uint64_t bytes)
{
    struct card_memory *card = l->card;
    uint64_t room = part(l) - held(l), beyond = bytes > room ? bytes - room : 0;

    if (l->kind == MEMORY_ONLINE && atomic_load(&card->restorations) && beyond > card_memory_left(card))
        return -EAGAIN;
    if (l->kind != MEMORY_RECLAIMABLE) {
        atomic_fetch_add(&card->taken_bytes, beyond);
        return 0;
    }
    if (beyond && (beyond > card_leaves(l) || !card_memory_take(card, beyond)))
        return -ENOMEM;
    atomic_fetch_add(&card->reclaimable_bytes, bytes);
    return 0;
}

int ledger_reserve(struct ledger *l, uint64_t bytes)
{
    int e;

    if (bytes > under_cap(l) || (bytes && is_shut(l)))
        return -ENOMEM;
    if (l->card && (e = reserve_on_card(l, bytes)) < 0)
        return e;
    l->reserved_bytes += bytes;
    note_peak(l);
    return 0;
}

int ledger_commit(struct ledger *l, uint64_t reserved, uint64_t actual)
{
    struct before was = before(l);
    int e = 0;

    assert(l->reserved_bytes >= reserved);
    l->reserved_bytes -= reserved;
    if (actual > under_cap(l))
        e = -ENOMEM;
    else
        l->used_bytes += actual;
    follow(l, was);
    note_peak(l);
    return e;
}

void ledger_charge(struct ledger *l, uint64_t bytes)
{
    struct before was = before(l);

    l->used_bytes += bytes;
    follow(l, was);
    note_peak(l);
}

void ledger_release(struct ledger *l, uint64_t bytes)
{
    struct before was = before(l);

    assert(l->used_bytes >= bytes);
    l->used_bytes -= bytes;
    follow(l, was);
}

uint64_t ledger_demand_bytes(const struct ledger *l)
{
    /* The reserved bytes are of a call that waits, and is tried just now. */
    uint64_t left = l->cap_bytes > l->used_bytes ? l->cap_bytes - l->used_bytes : 0;

    return l->demanded_bytes < left ? l->demanded_bytes : left;
}

void ledger_set_cap(struct ledger *l, uint64_t cap_bytes)
{
    struct before was = before(l);

    l->cap_bytes = cap_bytes;
    follow(l, was);
}

void ledger_join(struct ledger *l, struct card_memory *card, enum memory_kind kind)
{
    if (l->card == card && l->kind == kind)
        return;
    if (l->card) {
        if (l->room_bytes)
            atomic_fetch_sub(&l->card->restorations, 1);
        atomic_fetch_sub(&l->card->taken_bytes, part(l));
        atomic_fetch_sub(&l->card->used_bytes, l->used_bytes);
        if (l->kind == MEMORY_RECLAIMABLE)
            atomic_fetch_sub(&l->card->reclaimable_bytes, held(l));
    }
    l->card = card;
    l->kind = card ? kind : MEMORY_UNSHARED;
    l->room_bytes = 0;
    follow(l, (struct before){0});
}

int ledger_reclaim(struct ledger *l, bool closed, uint64_t room_bytes)
{
    struct ledger was = *l;
    uint64_t more = room_bytes > part(l) ? room_bytes - part(l) : 0;

    if (l->card && more && !card_memory_take(l->card, more))
        return -ENOSPC;
    l->closed = closed;
    l->room_bytes = room_bytes;
    if (!l->card)
        return 0;
    atomic_fetch_add(&l->card->taken_bytes, part(l) - part(&was) - more);
    if (!was.room_bytes != !room_bytes)
        atomic_fetch_add(&l->card->restorations, room_bytes ? 1 : -1u);
    return 0;
}
