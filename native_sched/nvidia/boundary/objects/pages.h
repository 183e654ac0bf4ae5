/* The caller's own pages, class 0x71: only the caller can pin them, so the account has such an object from
 * when it is first to be mapped, and by the driver's word. */
#ifndef MGPU_PAGES_H
#define MGPU_PAGES_H
#include "native_sched/nvidia/boundary/call/call.h"

/* Takes the object into the account, unless it has a name there: the driver says that it is memory of the
 * host's, whatever its maker had asked for. Its page tables are charged to the client's first card. 0, a
 * negative errno or rm_refusal(). */
int pages_adopt(struct call *c, const struct open_file *file, uint32_t client, uint32_t handle);

static inline bool may_be_mapped(uint32_t class_id)
{
    return rm_class_has_names(class_id) || class_id == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
}
#endif
