/* Controls of RM that the arbiter makes itself, through the driver table. */
#ifndef MGPU_RM_CONTROL_H
#define MGPU_RM_CONTROL_H
#include "driver.h"
#include <errno.h>

/* RM's status as an error: below every errno. Its warnings begin at 0x10000 (nvstatuscodes.h). */
enum { RM_REFUSAL = 0x10000, RM_STATUS_BITS = 0xffffff };
static inline int rm_refusal(uint32_t status)
{
    return -(int)(RM_REFUSAL + (status & RM_STATUS_BITS));
}
/* 0: it is an errno. */
static inline uint32_t rm_refused(int error)
{
    return error <= -RM_REFUSAL ? (uint32_t)(-error - RM_REFUSAL) : 0;
}
/* The same as an errno alone. */
static inline int rm_errno(int error)
{
    return rm_refused(error) ? -EIO : error;
}

/* RM_CONTROL on an object of the client that `of` names. -ESRCH: the client is gone; -ENOENT: another object
 * that the call names does not exist; RM's other refusals; errors of execute(). */
int control_of_client(const struct driver_ops *ops, struct driver *d, const struct rm_target *of,
                      uint32_t object, uint32_t cmd, void *params, uint32_t bytes);
#endif
