/* What export.c and import.c share. */
#ifndef MGPU_EXPORT_H
#define MGPU_EXPORT_H
#include "control.h"

/* The file behind a descriptor of the caller's, through which memory is exported: 0, rm_refusal() as RM says
 * of one that cannot be, or -EINTR: a signal has ended the call. RM takes files of the control node alone
 * (nv_get_file_private()), and we take the tenant's own alone. */
int export_file(struct call *c, int32_t fd, struct open_file *out);

/* As a control answers what is 0, a negative errno or rm_refusal(). */
static inline int export_answer(int e, uint32_t *status)
{
    *status = rm_refused(e);
    return *status ? 0 : e;
}

/* The call's client, on its own file, as that of a control on itself. NV_OK, or RM's no. */
uint32_t export_client(const struct call *c, const struct rm_control *ctl);

/* One of the controls that name a file, with parameters of ours, in the caller's name: 0, a negative errno
 * or rm_refusal(). */
int export_ask(struct call *c, uint32_t cmd, void *params, uint32_t bytes, const struct open_file *file);
#endif
