/* A reference to an open file that does not keep it open: a file that we held would outlive its container, and its
 * memory on the card with it.
 *
 * An epoll instance names the open file, not a descriptor, holds no reference, and forgets the file in its last close,
 * when no descriptor, no mapping and no message under way holds it any more. kcmp(KCMP_EPOLL_TFD) compares a descriptor
 * with the file such an instance names, and says ENOENT once it is gone. Each costs one descriptor of ours. The instance
 * is never waited on: a poll of NVIDIA's files takes their pending events away. */
#ifndef MGPU_NVIDIA_WEAK_FILE_H
#define MGPU_NVIDIA_WEAK_FILE_H
#include <stdbool.h>

struct weak_file {
    int epoll; /* -1: none */
    int number; /* the descriptor it was taken by: a name inside the instance, whatever the number means by now */
};

/* fd may be closed afterwards. -EPERM: files of its kind cannot be polled. -EMFILE, -ENOMEM, -ENOSPC. */
int weak_file_take(int fd, struct weak_file *out);
void weak_file_drop(struct weak_file *w);

/* 0: fd is this very file. 1: it comes before it, 2: behind it, in an order of all files that stays. -ENOENT: gone. */
int weak_file_compare(const struct weak_file *w, int fd);
bool weak_file_lives(const struct weak_file *w);
#endif
