#include "slab.h"
#include <errno.h>
#include <string.h>

static uint8_t *record(const struct slab *s, uint32_t slot)
{
    return s->at + (size_t)slot * s->layout->record_bytes;
}

static uint32_t *word(const struct slab *s, uint32_t slot, uint32_t offset)
{
    return (uint32_t *)(void *)(record(s, slot) + offset);
}

static uint32_t check_of(const struct slab *s, uint32_t slot)
{
    return store_check(record(s, slot) + s->layout->from, s->layout->to - s->layout->from);
}

int64_t slab_take(struct slab *s)
{
    uint32_t slot = s->free_head;

    if (slot) {
        s->free_head = *word(s, slot, s->layout->next_at);
        return slot;
    }
    if (s->high == s->layout->slots)
        return -ENFILE;
    if (store_reach(s->store, s->store_at + (s->high + 2ul) * s->layout->record_bytes) < 0)
        return -ENOSPC;
    return ++s->high;
}

void slab_commit(const struct slab *s, uint32_t slot)
{
    __atomic_store_n(word(s, slot, s->layout->check_at), check_of(s, slot), __ATOMIC_RELEASE);
}

void slab_retract(const struct slab *s, uint32_t slot)
{
    __atomic_store_n(word(s, slot, s->layout->check_at), 0, __ATOMIC_RELEASE);
}

void slab_put(struct slab *s, uint32_t slot)
{
    memset(record(s, slot), 0, s->layout->record_bytes);
    *word(s, slot, s->layout->next_at) = s->free_head;
    s->free_head = slot;
}

static bool is_whole(const struct slab *s, uint32_t slot)
{
    uint32_t check = *word(s, slot, s->layout->check_at);

    return check && check == check_of(s, slot);
}

void slab_recover(struct slab *s)
{
    size_t reached = (s->store->reached_bytes - s->store_at) / s->layout->record_bytes;

    for (uint32_t i = 1; i < reached && i <= s->layout->slots; i++)
        if (is_whole(s, i))
            s->high = i;
    for (uint32_t i = 1; i <= s->high; i++)
        if (!is_whole(s, i))
            slab_put(s, i);
}
