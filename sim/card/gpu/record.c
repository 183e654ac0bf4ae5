#include "state.h"

void group_record(const struct gpu_group *group, enum timeline_kind kind, uint64_t start_ns, uint64_t end_ns)
{
    const struct timeline_entry entry = {
        .kind = (uint8_t)kind,
        .engine = (uint8_t)group->totals.engine,
        .tsg = (uint16_t)group->totals.tsg,
        .tgid = group->totals.owner.tgid,
        .start_ns = start_ns,
        .end_ns = end_ns,
    };

    timeline_add(&group->gpu->timeline, &entry);
}

void utilization_ran(struct gpu_engine *engine, uint64_t from_ns, uint64_t to_ns)
{
    if (to_ns - from_ns > GPU_UTILIZATION_SLOT_NS * GPU_UTILIZATION_SLOTS)
        from_ns = to_ns - GPU_UTILIZATION_SLOT_NS * GPU_UTILIZATION_SLOTS;
    while (from_ns < to_ns) {
        uint64_t number = from_ns / GPU_UTILIZATION_SLOT_NS, end_ns = (number + 1) * GPU_UTILIZATION_SLOT_NS;
        struct gpu_slot *slot = &engine->slots[number % GPU_UTILIZATION_RING];

        if (slot->number != number)
            *slot = (struct gpu_slot){.number = number};
        end_ns = end_ns < to_ns ? end_ns : to_ns;
        slot->run_ns += end_ns - from_ns;
        slot->tgid = engine->running->totals.owner.tgid;
        from_ns = end_ns;
    }
}
