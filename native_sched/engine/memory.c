/* The functions of engine.h by which offline memory gives way to online (docs/reclaim.md). */
#define _GNU_SOURCE
#include "engine.h"
#include "engine_private.h"
#include "native_sched/loop/entities.h"
#include <errno.h>

int mgpu_evict_wait(struct mgpu_engine *e, uint32_t wait_ms)
{
    e->mediator.evict_wait_ms = wait_ms;
    return 0;
}

int mgpu_tenant_memory(struct mgpu_engine *e, uint64_t id, uint32_t kind)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    if (kind > MEMORY_RECLAIMABLE)
        return -EINVAL;
    WITH_TENANT(t);
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        if (t->granted[i])
            ledger_join(&t->ledger[i], kind == MEMORY_UNSHARED ? NULL : &e->memory[i],
                        (enum memory_kind)kind);
    return 0;
}

int mgpu_tenant_reclaim(struct mgpu_engine *e, uint64_t id, uint32_t closed, const uint64_t *room_bytes)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    WITH_TENANT(t);
    for (uint32_t i = 0; i < MAX_CARDS; i++) {
        if (!t->granted[i] || ledger_reclaim(&t->ledger[i], closed, room_bytes[i]) == 0)
            continue;
        while (i--)
            if (t->granted[i])
                ledger_reclaim(&t->ledger[i], true, 0);
        return -ENOSPC;
    }
    return 0;
}

int mgpu_tenant_drain(struct mgpu_engine *e, uint64_t id, uint64_t until_ns)
{
    return e->loop.config.off ? 0 : loop_drain(&e->loop, id, until_ns);
}

int mgpu_card_memory(struct mgpu_engine *e, uint32_t card, struct mgpu_card_memory *out)
{
    const struct card_memory *m = &e->memory[card];
    uint64_t used = 0, demanded = 0;

    if (!mediator_card(&e->mediator, card))
        return -ENOENT;
    {
        WITH_ENGINE(e);
        for (struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++) {
            if (!t->id || t->lost)
                continue;
            WITH_TENANT(t);
            used += t->ledger[card].used_bytes; /* of those too that were made when the node lent none */
            if (t->ledger[card].card == m)
                demanded += ledger_demand_bytes(&t->ledger[card]);
        }
    }
    *out = (struct mgpu_card_memory){
        .total_bytes = m->total_bytes,
        .taken_bytes = atomic_load(&m->taken_bytes),
        .reclaimable_bytes = atomic_load(&m->reclaimable_bytes),
        .used_bytes = used,
        .unreported_bytes = card_memory_unreported(m),
        .demanded_bytes = demanded,
        .demands = atomic_load(&m->demands),
        .restorations = atomic_load(&m->restorations),
    };
    return 0;
}
