/* How large the parameters of a control are, by the driver's version. */
#include "../../native_sched/nvidia/rm/lists.h"
#include "rm.h"
#include <string.h>

enum { SIZE_GONE = ~0u };

/* What the version's headers have; SIZE_GONE: they have no such control. */
static uint32_t bytes_of(const struct rm *rm, uint32_t cmd)
{
    static const struct {
        uint32_t cmd, major, minor, bytes;
    } sizes[] = {
#define SIZE(name, major, minor, bytes) {name, major, minor, bytes},
#include "facts/control_sizes.def"
    };
    int known = rm_control_params(&rm->table, cmd);
    uint32_t bytes = known >= 0 && known != RM_BYTES_CALLERS ? (uint32_t)known : SIZE_GONE;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].cmd == cmd &&
            (sizes[i].major < rm->major || (sizes[i].major == rm->major && sizes[i].minor <= rm->minor)))
            bytes = sizes[i].bytes;
    return bytes;
}

bool control_is_known(const struct rm *rm, uint32_t cmd)
{
    return bytes_of(rm, cmd) != (uint32_t)SIZE_GONE;
}

bool control_size_fits(const struct rm *rm, uint32_t cmd, uint32_t params_bytes)
{
    uint32_t bytes = bytes_of(rm, cmd);

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
