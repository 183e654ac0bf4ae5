/* What the graphics engine is made of. The SMs that a product has are spread over all GPCs of its chip: which
 * of them a card really misses differs from one card to the next. */
#include "../abi/info_abi.h"
#include "rm.h"
#include <string.h>

enum { SMS_PER_TPC = 2, WARP_THREADS = 32 };

enum gr_index { /* NV2080_CTRL_GR_INFO_INDEX_* */
                GR_THREAD_STACK_SCALING_FACTOR = 0x8,
                GR_SM_VERSION = 0xc,
                GR_MAX_WARPS_PER_SM = 0xd,
                GR_MAX_THREADS_PER_WARP = 0xe,
                GR_LITTER_NUM_GPCS = 0x14,
                GR_LITTER_NUM_TPC_PER_GPC = 0x17,
                GR_TIMESLICE_ENABLED = 0x1a,
                GR_LITTER_NUM_SM_PER_TPC = 0x20,
                GR_LITTER_NUM_GRS = 0x24,
                GR_MAX_SUBCONTEXT_COUNT = 0x2c,
                GR_MAX_PARTITIONABLE_GPCS = 0x36,
};
enum { SUBCONTEXTS = 64 };

/* As the headers write it: 8.6 is 0x806, and Blackwell's 12.0 is 10.4. */
uint32_t gr_sm_version(const struct card_profile *profile)
{
    if (profile->cc_major == 12)
        return 0xa04;
    return profile->cc_major << 8 | profile->cc_minor;
}

static uint32_t tpcs_of(const struct card_profile *profile, uint32_t gpc)
{
    uint32_t tpcs = profile->sm_count / SMS_PER_TPC;

    return tpcs / profile->gpcs + (gpc < tpcs % profile->gpcs);
}

static uint32_t value(const struct card_profile *profile, uint32_t index)
{
    switch (index) {
    case GR_SM_VERSION:
        return gr_sm_version(profile);
    case GR_MAX_WARPS_PER_SM:
        return profile->threads_per_sm / WARP_THREADS;
    case GR_MAX_THREADS_PER_WARP:
        return WARP_THREADS;
    case GR_LITTER_NUM_GPCS:
    case GR_MAX_PARTITIONABLE_GPCS:
        return profile->gpcs;
    case GR_LITTER_NUM_TPC_PER_GPC:
        return profile->tpcs_per_gpc;
    case GR_LITTER_NUM_SM_PER_TPC:
        return SMS_PER_TPC;
    case GR_MAX_SUBCONTEXT_COUNT:
        return SUBCONTEXTS;
    case GR_THREAD_STACK_SCALING_FACTOR:
    case GR_TIMESLICE_ENABLED:
    case GR_LITTER_NUM_GRS:
        return 1;
    default:
        return 0;
    }
}

uint32_t gr_info(const struct rm_request *request)
{
    uint32_t count;
    struct rm_info_entry *list = request_list(request, sizeof *list, 0, &count);

    if (!list)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        list[i].data = value(request->card->profile, list[i].index);
    return NV_OK;
}

uint32_t gr_gpc_mask(const struct rm_request *request)
{
    struct rm_gr_mask *mask = request->params;

    mask->word[0] = (1u << request->card->profile->gpcs) - 1;
    return NV_OK;
}

uint32_t gr_tpc_mask(const struct rm_request *request)
{
    struct rm_gr_mask *mask = request->params;

    if (mask->word[0] >= request->card->profile->gpcs)
        return NV_ERR_INVALID_ARGUMENT;
    mask->word[1] = (1u << tpcs_of(request->card->profile, mask->word[0])) - 1;
    return NV_OK;
}

/* 512 SMs, then how many SMs and TPCs there are. What is told of an SM has grown. */
uint32_t gr_sm_order(const struct rm_request *request)
{
    enum { SMS_MAX = 512, TAIL_BYTES = 24, KNOWN = 6 };
    const struct card_profile *profile = request->card->profile;
    uint32_t words = (request->params_bytes - TAIL_BYTES) / SMS_MAX / sizeof(uint16_t);
    uint16_t *at = request->params, *tail = at + (size_t)words * SMS_MAX;
    uint16_t sms = 0, tpcs = 0;

    memset(at, 0, (size_t)words * SMS_MAX * sizeof *at);
    for (uint16_t gpc = 0; gpc < profile->gpcs; gpc++)
        for (uint16_t tpc = 0; tpc < tpcs_of(profile, gpc); tpc++, tpcs++)
            for (uint16_t sm = 0; sm < SMS_PER_TPC; sm++, at += words) {
                const uint16_t known[KNOWN] = {gpc, tpc, sm, tpcs, gpc, tpc};

                memcpy(at, known, sizeof known);
                sms++;
            }
    tail[0] = sms;
    tail[1] = tpcs;
    return NV_OK;
}
