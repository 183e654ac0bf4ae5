/* Whether a control's parameters are as large as the driver's version has them. */
#include "../abi/control_sizes.h"
#include "../../native_sched/nvidia/rm/lists.h"
#include "rm.h"
#include <string.h>

bool control_is_known(const struct rm *rm, uint32_t cmd)
{
    return control_bytes(&rm->table, cmd) != (uint32_t)SIZE_GONE;
}

bool control_size_fits(const struct rm *rm, uint32_t cmd, uint32_t params_bytes)
{
    uint32_t bytes = control_bytes(&rm->table, cmd);

    return bytes == (uint32_t)SIZE_GONE || bytes == params_bytes;
}

void *request_list(const struct rm_request *request, uint32_t element_bytes, uint32_t i, uint32_t *count)
{
    uint8_t *params = request->params;
    uint64_t pointer;

    memcpy(count, params, sizeof *count);
    memcpy(&pointer, params + RM_LISTS_POINTERS_AT + i * sizeof pointer, sizeof pointer);
    if (!pointer)
        return NULL;
    return params + rm_list_at(request->params_bytes, *count * element_bytes, i);
}
