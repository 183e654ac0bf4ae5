/* What the graphics engine says of itself. */
#include "table.h"

enum { CONTEXT_BUFFER_BYTES = 0x20000, CONTEXT_BUFFER_ALIGN = 0x1000 };

/* By NV0080_CTRL_GR_INFO_INDEX_*. */
uint32_t answer_gr_info(struct asked *asked)
{
    const struct chip *chip = asked->card->chip;
    const struct {
        uint32_t index, value;
    } known[] = {
        {0x08, 7},                                   /* THREAD_STACK_SCALING_FACTOR */
        {0x09, chip->gpcs * chip->tpcs_per_gpc * 2}, /* SHADER_PIPE_SUB_COUNT: multiprocessors */
        {0x0c, chip->sm_version},                    /* SM_VERSION */
        {0x0d, chip->sm_version >= 0x800 ? 48 : 32}, /* MAX_WARPS_PER_SM */
        {0x12, 12},                                  /* HOST_MEMORY_REQUEST_GRANULARITY */
        {0x14, chip->gpcs},                          /* LITTER_NUM_GPCS */
        {0x15, chip->bus_bits / 32},                 /* LITTER_NUM_FBPS */
        {0x16, chip->tpcs_per_gpc},                  /* LITTER_NUM_ZCULL_BANKS */
        {0x17, 2},                                   /* LITTER_NUM_TPC_PER_GPC */
        {0x1d, 128},                                 /* GPU_CORE_COUNT */
        {0x2a, 2},                                   /* FAMILY_MAX_TPC_PER_GPC */
        {0x2c, 64},                                  /* MAX_SUBCONTEXT_COUNT */
        {0x2d, 2},                                   /* MAX_LEGACY_SUBCONTEXT_COUNT */
        {0x2e, 64},                                  /* MAX_PER_ENGINE_SUBCONTEXT_COUNT */
    };
    uint32_t engine_bytes = asked->card->layout->value[AT_gr_info_bytes];

    answer_zero(asked);
    for (uint32_t at = 0; at < asked->bytes; at += 8)
        answer_put(asked, at, at % engine_bytes / 8, 4);
    for (uint32_t i = 0; i < sizeof known / sizeof known[0]; i++)
        answer_put(asked, known[i].index * 8 + 4, known[i].value, 4);
    return 0;
}

uint32_t answer_gr_masks(struct asked *asked)
{
    const struct chip *chip = asked->card->chip;
    const uint32_t *at = asked->card->layout->value;

    answer_zero(asked);
    answer_put(asked, 0, (1u << chip->gpcs) - 1, 4);
    answer_put(asked, at[AT_gr_masks_gpcs], (1u << chip->gpcs) - 1, 4);
    for (uint32_t i = 0; i < chip->gpcs; i++) {
        answer_put(asked, at[AT_gr_masks_tpc] + 4 * i, (1u << chip->tpcs_per_gpc) - 1, 4);
        answer_put(asked, at[AT_gr_masks_tpcs] + 4 * i, chip->tpcs_per_gpc, 4);
    }
    return 0;
}

uint32_t answer_gr_buffers(struct asked *asked)
{
    answer_zero(asked);
    for (uint32_t i = 0; i < asked->card->layout->value[AT_gr_buffers]; i++) {
        answer_put(asked, 8 * i, CONTEXT_BUFFER_BYTES, 4);
        answer_put(asked, 8 * i + 4, CONTEXT_BUFFER_ALIGN, 4);
    }
    return 0;
}
