#ifndef MGPU_PRIVILEGES_H
#define MGPU_PRIVILEGES_H

/* Takes CAP_SYS_ADMIN, CAP_SYS_NICE and CAP_PERFMON from the calling thread. The driver judges privilege by
 * the calling thread of each ioctl: with CAP_SYS_ADMIN a channel allocated on a tenant's behalf would become
 * an administrator's channel and let the tenant out of its memory. (open-gpu-kernel-modules,
 * kernel_channel.c) */
void drop_thread_privileges(void);
#endif
