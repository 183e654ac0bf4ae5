/* What export.c and import.c share. */
#ifndef MGPU_EXPORT_H
#define MGPU_EXPORT_H
#include "control.h"

/* The file behind a descriptor of the caller's, through which memory is exported: 0, rm_refusal() as RM says
 * of one that cannot be, or -EINTR: a signal has ended the call. RM takes files of the control node alone
 * (nv_get_file_private()), and we take the tenant's own alone. */
int export_file(struct call *c, int32_t fd, struct open_file *out);

/* The call's client, on its own file, as that of a control on itself. NV_OK, or RM's no. */
uint32_t export_client(const struct call *c, const struct rm_control *ctl);
#endif
