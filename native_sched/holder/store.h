/* Copies of the listeners, and of seccomp.sock, in the service manager's descriptor store: the next holder
 * gets them by sd_listen_fds(3), also where mgpud has ended at the same instant. A listener's number is its
 * name there, and the runtime's message lies beside it in a sealed memfd of that name. Without a service
 * manager there is no store. */
#ifndef MGPU_HOLDER_STORE_H
#define MGPU_HOLDER_STORE_H
#include "table.h"
#include <stdint.h>

enum { STORE_AGAIN_MS = 10, STORE_LOST_AGAIN_MS = 1000 };

/* seccomp.sock, if it is still bound to that path; else -1. Whatever else came is closed, and leaves the
 * store. */
int store_take_back(const char *path);
void store_keep_socket(int fd);
void store_drop_socket(void);
/* Stores what is not there yet, and what was dropped leaves it. */
void store_tell(void);
/* The same once more when that is due; returns the ms until it is due again, -1 for never. */
int64_t store_poll(int64_t now_ms);
/* held_drop(), also in the store. */
void store_drop(struct held *h);
#endif
