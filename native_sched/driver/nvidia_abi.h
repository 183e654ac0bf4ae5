/* Parts of the RM boundary that only the arbiter's own calls use; the rest is boundary/rm_abi.h. */
#ifndef MGPU_NVIDIA_ABI_H
#define MGPU_NVIDIA_ABI_H
#include "../boundary/rm_abi.h"

enum { RM_CTRL_ENGINE_RUNLIST_BASE = 0x20800179, RM_RUNLIST_ENGINES = 84 };
struct rm_runlist_bases { /* 0x20800179, 1008; a base at or above the first error is none */
    uint32_t engine[RM_RUNLIST_ENGINES], base[RM_RUNLIST_ENGINES], id[RM_RUNLIST_ENGINES];
};
enum { RM_MAP_READ_ONLY = 1 };

struct rm_mig_monitor { /* class 0xc640; descriptor: of the capability */
    uint64_t descriptor;
};
enum { RM_VID_HEAP_FUNCTION_AT = 0x8 };

/* Offsets in the outer structs. */
enum { RM_PARAMS_AT = 0x10, RM_ALLOC_RIGHTS_AT = 0x18 };

_Static_assert(sizeof(struct rm_runlist_bases) == 1008, "runlist bases");
_Static_assert(offsetof(struct rm_alloc, params) == RM_PARAMS_AT, "NVOS64");
_Static_assert(offsetof(struct rm_alloc_short, params) == RM_PARAMS_AT, "NVOS21");
_Static_assert(offsetof(struct rm_control, params) == RM_PARAMS_AT, "NVOS54");
_Static_assert(offsetof(struct rm_alloc, rights) == RM_ALLOC_RIGHTS_AT, "NVOS64");
#endif
