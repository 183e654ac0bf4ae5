/* When each engine executed, exactly, as the control that reads utilisation tells it. */
#include "../../../base/clock.h"
#include "state.h"
#include <time.h>

static struct gpu_use use_of(const struct gpu_engine *engine, uint64_t number)
{
    const struct gpu_slot *slot = &engine->slots[number % GPU_UTILIZATION_RING];

    if (slot->number != number)
        return (struct gpu_use){0};
    return (struct gpu_use){(uint32_t)(slot->run_ns * 10000 / GPU_UTILIZATION_SLOT_NS), slot->tgid};
}

uint64_t gpu_utilization(struct gpu *gpu, struct gpu_use use[GPU_UTILIZATION_SLOTS][GPU_ENGINES])
{
    uint64_t current;

    gpu_lock(gpu);
    current = gpu_catch_up(gpu) / GPU_UTILIZATION_SLOT_NS;
    for (uint32_t i = 0; i < GPU_ENGINES; i++) {
        engine_progress(&gpu->engines[i]);
        for (uint32_t k = 0; k < GPU_UTILIZATION_SLOTS; k++)
            use[k][i] = use_of(&gpu->engines[i], current - GPU_UTILIZATION_SLOTS + k);
    }
    gpu_settle_unlock(gpu);
    return current * GPU_UTILIZATION_SLOT_NS;
}
