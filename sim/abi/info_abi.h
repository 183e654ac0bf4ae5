/* Parameters of controls that ask what a GPU is, as NVIDIA's headers lay them out. */
#ifndef MGPU_SIM_INFO_ABI_H
#define MGPU_SIM_INFO_ABI_H
#include <stdint.h>

struct rm_info_entry { /* NVXXXX_CTRL_XXX_INFO, and NV2080_CTRL_GR_INFO */
    uint32_t index, data;
};

struct rm_gr_mask { /* NV2080_CTRL_GR_GET_GPC_MASK_PARAMS, and of TPCs */
    uint32_t route_flags, pad;
    uint64_t route;
    uint32_t word[2]; /* gpcMask; or gpcId, tpcMask */
};
_Static_assert(sizeof(struct rm_gr_mask) == 24, "NV2080_CTRL_GR_GET_TPC_MASK_PARAMS");
#endif
