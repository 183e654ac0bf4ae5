/* Controls whose parameters point to lists of the caller's, such as NV2080_CTRL_CMD_GR_GET_INFO. The lists
 * are put behind the parameters in our copy, so that the driver follows pointers into our memory alone. */
#include "control.h"
#include "native_sched/nvidia/rm/lists.h"
#include "view.h"
#include <errno.h>
#include <string.h>

enum { LISTS_BYTES_MAX = 16 << 10 };

/* The i-th list of so many bytes in our copy. */
static uint8_t *list_at(struct call *c, uint32_t bytes, uint32_t i)
{
    return c->params + rm_list_at(c->params_bytes, bytes, i);
}

static int copy_lists_back(struct call *c, const uint64_t *theirs, uint32_t lists, uint32_t bytes)
{
    int e = 0;

    for (uint32_t i = 0; i < lists && e == 0; i++)
        if (theirs[i] && caller_waits(c->caller))
            e = caller_write_both(c->caller, theirs[i], list_at(c, bytes, i), bytes, 0, NULL, 0);
    return e;
}

static int with_lists(struct call *c, uint32_t *status,
                      void (*view)(struct call *c, void *list, uint32_t count, uint32_t *status))
{
    const struct rm_row *row = c->params_row;
    uint64_t theirs[RM_LISTS_MAX], ours;
    uint32_t count, bytes;
    int e;

    memcpy(&count, c->params, sizeof(count));
    memcpy(theirs, c->params + RM_LISTS_POINTERS_AT, row->lists * sizeof(*theirs));
    if (count > LISTS_BYTES_MAX / RM_LISTS_MAX / row->element_bytes - RM_LISTS_ALIGNMENT) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    bytes = count * row->element_bytes;
    for (uint32_t i = 0; i < row->lists; i++) {
        ours = theirs[i] ? (uintptr_t)list_at(c, bytes, i) : 0;
        if (ours && (e = caller_read(c->caller, theirs[i], list_at(c, bytes, i), bytes)) < 0)
            return e;
        memcpy(c->params + RM_LISTS_POINTERS_AT + i * sizeof(ours), &ours, sizeof(ours));
    }
    e = call_driver(c);
    /* The caller must not see where our memory lies. */
    memcpy(c->params + RM_LISTS_POINTERS_AT, theirs, row->lists * sizeof(*theirs));
    if (e == 0 && !*status && view && theirs[0])
        view(c, list_at(c, bytes, 0), count, status);
    if (e < 0 || *status)
        return e;
    return copy_lists_back(c, theirs, row->lists, bytes);
}

int control_lists(struct call *c, uint32_t *status)
{
    return with_lists(c, status, NULL);
}

int control_fb_list(struct call *c, uint32_t *status)
{
    return with_lists(c, status, view_fb_list);
}
