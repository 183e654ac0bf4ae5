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

uint64_t card_memory_unreported(const struct card_memory *m)
{
    enum { UNREPORTED_PART = 16 };

    return m->total_bytes / UNREPORTED_PART;
}

bool card_memory_lacks(const struct card_memory *m, uint64_t bytes)
{
    uint64_t used = atomic_load(&m->used_bytes), unreported = card_memory_unreported(m);

    return used + unreported > m->total_bytes || bytes > m->total_bytes - used - unreported;
}
