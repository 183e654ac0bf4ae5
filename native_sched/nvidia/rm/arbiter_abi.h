/* Parts of the RM boundary that only the arbiter's own calls use; the rest is
 * native_sched/nvidia/rm/rm_abi.h. */
#ifndef MGPU_NVIDIA_ABI_H
#define MGPU_NVIDIA_ABI_H
#include "rm_abi.h"

enum { RM_CTRL_ENGINE_RUNLIST_BASE = 0x20800179, RM_RUNLIST_ENGINES = 84, RM_RUNLIST_LISTS = 3 };
/* Its parameters are lists of as many words: engines, their runlists' bases and, from 570.86 on, ids. A base
 * at or above the first error is none (ctrl2080gpu.h). */
static const struct rm_runlist_shape {
    uint32_t engines, lists;
} rm_runlist_shapes[] = {
    {RM_RUNLIST_ENGINES, RM_RUNLIST_LISTS},
    {RM_RUNLIST_ENGINES, 2}, /* 560.28 */
    {64, 2},                 /* 550.40 */
    {63, 2},                 /* 545.23 */
    {62, 2},
};
enum { RM_MAP_READ_ONLY = 1 };

struct rm_mig_monitor { /* class 0xc640; descriptor: of the capability */
    uint64_t descriptor;
};
enum { RM_VID_HEAP_FUNCTION_AT = 0x8 };

/* Offsets in the outer structs. */
enum { RM_PARAMS_AT = 0x10, RM_ALLOC_RIGHTS_AT = 0x18 };

_Static_assert(offsetof(struct rm_alloc, params) == RM_PARAMS_AT, "NVOS64");
_Static_assert(offsetof(struct rm_alloc_short, params) == RM_PARAMS_AT, "NVOS21");
_Static_assert(offsetof(struct rm_control, params) == RM_PARAMS_AT, "NVOS54");
_Static_assert(offsetof(struct rm_alloc, rights) == RM_ALLOC_RIGHTS_AT, "NVOS64");
#endif
