#include "utilization.h"

enum { VALUE_BITS = 16, VALUE_MAX = 0xffff, PERCENT = 100 };
/* A sample is over as many slots: a quota of less than half the card is used in bursts that one slot shows as
 * too much or too little. */
enum { SMOOTHED_SLOTS = 7 };
#define CLOCK_WAS_SET_NS 100000000

static void show(struct utilization_of_card *u, uint64_t number)
{
    uint64_t value = u->used_ns * UTILIZATION_WHOLE / u->seen_ns;

    if (value > VALUE_MAX)
        value = VALUE_MAX;
    atomic_store_explicit(&u->slot[number % UTILIZATION_SLOTS], number << VALUE_BITS | value,
                          memory_order_relaxed);
}

/* The part of a poll's time that lies in one slot; used_ns: at most all of it. */
static void fill(struct utilization_of_card *u, uint64_t to, uint64_t used_ns)
{
    uint64_t number = u->noted_ns / UTILIZATION_SLOT_NS;

    u->seen_ns += to - u->noted_ns;
    u->used_ns += used_ns;
    u->noted_ns = to;
    show(u, number);
    if (to % UTILIZATION_SLOT_NS == 0)
        u->seen_ns = u->used_ns = 0;
}

void utilization_note(struct utilization_of_card *u, uint64_t now, int64_t used_ns, uint32_t most_percent)
{
    uint64_t passed_ns = now - u->noted_ns, left, part, end;

    if (!u->noted_ns || now < u->noted_ns || passed_ns > UTILIZATION_WINDOW_NS) {
        u->noted_ns = now;
        u->seen_ns = u->used_ns = 0;
        return;
    }
    if (used_ns < 0) {
        left = (uint64_t)-used_ns * PERCENT / most_percent;
        u->used_ns -= left < u->used_ns ? left : u->used_ns;
        used_ns = 0;
    }
    left = (uint64_t)used_ns < passed_ns ? (uint64_t)used_ns : passed_ns;
    left = left * PERCENT / most_percent;
    while (u->noted_ns < now) {
        end = (u->noted_ns / UTILIZATION_SLOT_NS + 1) * UTILIZATION_SLOT_NS;
        end = end < now ? end : now;
        part = left * (end - u->noted_ns) / (now - u->noted_ns);
        left -= part;
        fill(u, end, part);
    }
}

void utilization_pause(struct utilization_of_card *u)
{
    u->noted_ns = 0;
}

/* -1: not known. */
static int64_t value_of(const struct utilization_of_card *u, uint64_t number)
{
    uint64_t slot = atomic_load_explicit(&u->slot[number % UTILIZATION_SLOTS], memory_order_relaxed);

    return slot >> VALUE_BITS == number ? (int64_t)(slot & VALUE_MAX) : -1;
}

/* Over the second that ends with the slot, as far as it is known. */
static uint32_t smoothed(const struct utilization_of_card *u, uint64_t number, uint64_t first, bool idle)
{
    uint64_t sum = 0, known = 0;

    for (uint64_t i = number; i >= first && number - i < SMOOTHED_SLOTS; i--) {
        int64_t value = value_of(u, i);

        if (value < 0 && !idle)
            break;
        sum += value < 0 ? 0 : (uint64_t)value;
        known++;
    }
    if (!known)
        return 0;
    return sum < known * UTILIZATION_WHOLE ? (uint32_t)(sum / known) : UTILIZATION_WHOLE;
}

uint32_t utilization_read(const struct utilization_of_card *u, uint64_t now, bool idle,
                          struct utilization_sample *out)
{
    uint64_t current = now / UTILIZATION_SLOT_NS;
    uint64_t first = current > UTILIZATION_SAMPLES ? current - UTILIZATION_SAMPLES : 1;
    uint32_t n = 0;

    for (uint64_t i = first; i < current; i++)
        if (idle || value_of(u, i) >= 0)
            out[n++] = (struct utilization_sample){(i + 1) * UTILIZATION_SLOT_NS,
                                                   smoothed(u, i, first, idle)};
    if (!n && value_of(u, current) >= 0)
        out[n++] = (struct utilization_sample){now, smoothed(u, current, current, idle)};
    if (!n)
        out[n++] = (struct utilization_sample){current * UTILIZATION_SLOT_NS, 0};
    return n;
}

bool utilization_want(struct utilization *u, uint64_t now, uint64_t until_ns)
{
    uint64_t before = atomic_load_explicit(&u->wanted_until_ns, memory_order_relaxed);

    if (before < until_ns)
        atomic_store_explicit(&u->wanted_until_ns, until_ns, memory_order_relaxed);
    return before <= now;
}

bool utilization_wanted(const struct utilization *u, uint64_t now)
{
    return atomic_load_explicit(&u->wanted_until_ns, memory_order_relaxed) > now;
}

int64_t utilization_wall_ahead(struct utilization *u, uint64_t now, uint64_t wall_ns)
{
    int64_t kept = atomic_load_explicit(&u->wall_ahead_ns, memory_order_relaxed);
    int64_t ahead = (int64_t)(wall_ns - now), off = ahead - kept;

    if (off > -CLOCK_WAS_SET_NS && off < CLOCK_WAS_SET_NS)
        return kept;
    atomic_store_explicit(&u->wall_ahead_ns, ahead, memory_order_relaxed);
    return ahead;
}
