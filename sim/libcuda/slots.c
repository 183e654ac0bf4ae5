#include "../../base/mutex.h"
#include "engines.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { SLAB_SLOTS = 1024, SLAB_BYTES = SLAB_SLOTS * sizeof(struct sim_semaphore) };

struct slab {
    struct slab *next;
    uint8_t *map;
    struct slot slots[SLAB_SLOTS];
};

static void put_last(struct engines *engines, struct slot *slot)
{
    slot->next = NULL;
    if (!engines->slots_free)
        engines->slots_free_end = &engines->slots_free;
    *engines->slots_free_end = slot;
    engines->slots_free_end = &slot->next;
}

static void put_first(struct engines *engines, struct slot *slot)
{
    slot->next = engines->slots_free;
    if (!slot->next)
        engines->slots_free_end = &slot->next;
    engines->slots_free = slot;
}

/* Slabs of contexts that are gone: their memory stays the process's, since other contexts' channels may be
 * about to look at it. Atomic and without a lock, which a forked child could find held. */
static struct slab *pool;

static void pool_add(struct slab *first)
{
    struct slab *last = first;

    if (!first)
        return;
    while (last->next)
        last = last->next;
    last->next = __atomic_load_n(&pool, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&pool, &last->next, first, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

static struct slab *slab_from_pool(void)
{
    struct slab *slab = __atomic_exchange_n(&pool, NULL, __ATOMIC_ACQUIRE);

    if (slab)
        pool_add(slab->next);
    return slab;
}

static struct slab *slab_make(struct engines *engines, uint32_t *status)
{
    struct slab *slab = calloc(1, sizeof *slab);
    struct sim_semaphore *semaphores;
    uint32_t memory = 0;

    *status = NV_ERR_NO_MEMORY;
    if (!slab)
        return NULL;
    *status = engines_memory(engines, SLAB_BYTES, &memory, &slab->map);
    if (*status) {
        free(slab);
        return NULL;
    }
    semaphores = (void *)slab->map;
    for (uint32_t i = 0; i < SLAB_SLOTS; i++)
        slab->slots[i] = (struct slot){
            .memory = memory,
            .offset = i * (uint32_t)sizeof *semaphores,
            .semaphore = &semaphores[i],
        };
    return slab;
}

static uint32_t slab_add(struct engines *engines)
{
    struct slab *slab = slab_from_pool();
    uint32_t status;

    if (!slab)
        slab = slab_make(engines, &status);
    if (!slab)
        return status;
    slab->next = engines->slabs;
    engines->slabs = slab;
    for (uint32_t i = 0; i < SLAB_SLOTS; i++)
        put_first(engines, &slab->slots[i]);
    return NV_OK;
}

/* Those that are given back wait at the end of the list: the first has had the most time. */
static bool first_is_ready(const struct engines *engines)
{
    const struct slot *first = engines->slots_free;

    return first && semaphore_reached(first->semaphore, first->issued);
}

struct slot *slot_take(struct engines *engines, CUresult *error)
{
    struct slot *slot = NULL;

    LOCKED(&engines->lock);
    *error = engines_error(engines);
    if (!*error && !first_is_ready(engines))
        *error = from_rm(slab_add(engines));
    if (!*error) {
        slot = engines->slots_free;
        engines->slots_free = slot->next;
        slot->issued++;
    }
    return slot;
}

void slot_give(struct engines *engines, struct slot *slot)
{
    LOCKED(&engines->lock);
    put_last(engines, slot);
}

void slabs_end(struct engines *engines)
{
    for (struct slab *slab = engines->slabs; slab; slab = slab->next)
        for (uint32_t i = 0; i < SLAB_SLOTS; i++)
            if (!semaphore_reached(slab->slots[i].semaphore, slab->slots[i].issued))
                semaphore_set(slab->slots[i].semaphore, slab->slots[i].issued);
}

void slabs_to_pool(struct engines *engines)
{
    pool_add(engines->slabs);
    engines->slabs = NULL;
}

uint32_t slabs_return(struct engines *engines)
{
    uint32_t status = NV_OK;

    for (struct slab *slab = engines->slabs; slab && !status; slab = slab->next) {
        uint32_t memory;

        status = engines_memory_at(engines, SLAB_BYTES, 0, SLAB_BYTES, &memory, slab->map);
        for (uint32_t i = 0; i < SLAB_SLOTS && !status; i++)
            slab->slots[i].memory = memory;
    }
    return status;
}

void slabs_forget(void)
{
    while (pool) {
        struct slab *slab = pool;

        pool = slab->next;
        munmap(slab->map, SLAB_BYTES);
        free(slab);
    }
}
