#include "registers.h"
#include "../../../native_sched/nvidia/rm/channel.h"
#include "../../abi/channel_abi.h"

enum { COPIES_BELOW_10 = 10 };

uint32_t registers_number(uint32_t engine_type)
{
    if (rm_is_video_engine(engine_type))
        return REGISTERS_VIDEO +
               (uint32_t)__builtin_popcountll(RM_VIDEO_ENGINES & ((UINT64_C(1) << engine_type) - 1));
    if (engine_type >= RM_ENGINE_COPY10)
        return engine_type - RM_ENGINE_COPY10 + COPIES_BELOW_10 + 1;
    return engine_type >= RM_ENGINE_COPY0 ? engine_type - RM_ENGINE_COPY0 + 1 : 0;
}

uint32_t registers_engine_type(uint32_t number)
{
    if (!number)
        return RM_ENGINE_GRAPHICS;
    return number <= COPIES_BELOW_10 ? RM_ENGINE_COPY0 + number - 1
                                     : RM_ENGINE_COPY10 + number - 1 - COPIES_BELOW_10;
}

/* The copy engines that are graphics' own share its runlist: as many as it has further words. */
uint32_t registers_runlist(const struct registers *r, uint32_t number)
{
    return number < r->words ? 0 : number - r->words + 1;
}

uint32_t registers_status(const struct registers *r, uint32_t engine_type)
{
    uint32_t number = registers_number(engine_type), runlist = registers_runlist(r, number);

    if (r->whole_card && number >= REGISTERS_VIDEO)
        number = r->words - 1;
    if (r->whole_card)
        return number < r->words ? r->status + number * r->stride : 0;
    if (runlist >= SIM_RUNLISTS_MAX)
        return 0;
    return RUNLISTS_AT + runlist * RUNLIST_BYTES + r->status + (runlist ? 0 : number * r->stride);
}
