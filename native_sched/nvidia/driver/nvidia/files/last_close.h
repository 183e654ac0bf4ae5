/* Whether a close of ours was the last of its open file.
 *
 * A file may also be in a message on a socket, in a mapping, or under a call of a thread, which cannot be
 * seen from outside. But the kernel reports FAN_CLOSE at a file's last close alone (fsnotify_close() in
 * __fput()), with the thread that made it, and at ours that thread is this one. Other closes of the same node
 * are other threads'. */
#ifndef MGPU_NVIDIA_LAST_CLOSE_H
#define MGPU_NVIDIA_LAST_CLOSE_H
#include <stdbool.h>

/* Two ways to receive the event: by the file's name, which kernels before 5.13 lack in some file systems, or
 * by a new descriptor of it, which newer ones do not make of device nodes. */
enum { LAST_CLOSE_GROUPS = 2 };

struct nvidia_last_close {
    int group[LAST_CLOSE_GROUPS]; /* -1: the kernel lacks it */
};

/* Needs CAP_SYS_ADMIN. A negative errno where the kernel does not report it. */
int nvidia_last_close_open(struct nvidia_last_close *l);
void nvidia_last_close_end(const struct nvidia_last_close *l);

/* Closes our descriptor. True: it was the last of its file. False also where that cannot be seen. One thread
 * at a time. */
bool nvidia_last_close(const struct nvidia_last_close *l, int fd);
#endif
