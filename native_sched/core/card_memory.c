#include "card_memory.h"

bool card_memory_take(struct card_memory *m, uint64_t bytes)
{
    uint64_t taken = atomic_load(&m->taken_bytes);

    do {
        if (taken > m->total_bytes || bytes > m->total_bytes - taken)
            return false;
    } while (!atomic_compare_exchange_weak(&m->taken_bytes, &taken, taken + bytes));
    return true;
}

uint64_t card_memory_left(const struct card_memory *m)
{
    uint64_t taken = atomic_load(&m->taken_bytes);

    return taken < m->total_bytes ? m->total_bytes - taken : 0;
}

void card_memory_demand(struct card_memory *m, uint64_t bytes)
{
    atomic_fetch_add(&m->demanded_bytes, bytes);
    atomic_fetch_add(&m->demands, 1);
}

void card_memory_demand_ends(struct card_memory *m, uint64_t bytes)
{
    atomic_fetch_sub(&m->demands, 1);
    atomic_fetch_sub(&m->demanded_bytes, bytes);
}
