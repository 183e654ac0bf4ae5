/* The service manager, by sd_notify(3): systemd, or `mgpu up`. */
#ifndef MGPU_HOLDER_MANAGER_H
#define MGPU_HOLDER_MANAGER_H
#include <stdbool.h>
#include <stddef.h>

/* By NOTIFY_SOCKET; without it there is none. */
void manager_init(void);
bool manager_exists(void);
/* Sends lines of NAME=VALUE with at most two descriptors. 0: sent; -ENOTCONN: there is none;
 * -EAGAIN: once there is room; another negative errno: it cannot be reached. Never waits. */
int manager_tell(const char *lines, const int *fds, size_t count);
#endif
