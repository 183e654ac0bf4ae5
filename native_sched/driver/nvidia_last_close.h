/* Whether a close of ours was the last of its open file.
 *
 * There is no look from outside that tells: a file may be in a message on a socket, in a mapping, or under a call that a thread
 * has begun. But the kernel says FAN_CLOSE at a file's last close alone (fsnotify_close() in __fput()), with the thread that
 * made it, and at ours that thread is this one. Others' closes of files of the same node are others' threads'. */
#ifndef MGPU_NVIDIA_LAST_CLOSE_H
#define MGPU_NVIDIA_LAST_CLOSE_H
#include <stdbool.h>

/* Two ways to be told: by the file's name, which kernels before 5.13 do not have in every file system, or by a new descriptor of
 * it, which newer ones do not make of device nodes. */
enum { LAST_CLOSE_GROUPS = 2 };

struct last_close {
    int group[LAST_CLOSE_GROUPS]; /* -1: the kernel lacks it */
};

/* Needs CAP_SYS_ADMIN. A negative errno where the kernel does not tell. */
int last_close_open(struct last_close *l);
void last_close_end(const struct last_close *l);

/* Closes our descriptor, and with it the file, if that was the last of it: true. By one thread at a time. False also where it
 * cannot be seen. */
bool last_close(const struct last_close *l, int fd);
#endif
