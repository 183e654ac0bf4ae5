/* What export.c and import.c share. */
#ifndef MGPU_EXPORT_H
#define MGPU_EXPORT_H
#include "control.h"

/* The file behind a descriptor of the caller's, through which memory is exported: NV_OK, what RM says of one that cannot be, or
 * -EINTR: a signal has ended the call. RM takes files of the control node alone (nv_get_file_private()), and we take the
 * tenant's own alone. */
int export_file(struct call *c, int32_t fd, struct open_file *out);

/* As a control answers what is an RM status or a negative errno. */
static inline int export_answer(int e, uint32_t *status)
{
    *status = e < 0 ? NV_OK : (uint32_t)e;
    return e < 0 ? e : 0;
}

/* The call's client, on its own file, as that of a control on itself. NV_OK, or RM's no. The tenant is held. */
uint32_t export_client(const struct call *c, const struct rm_control *ctl);

/* One of the controls that name a file, with parameters of ours, in the caller's name: an RM status, or a negative errno. */
int export_ask(struct call *c, uint32_t cmd, void *params, uint32_t bytes, const struct open_file *file);
#endif
