/* A reference to an open file that does not keep it open: a file that we held would outlive its container,
 * and its memory on the card with it.
 *
 * An epoll instance names the open file, not a descriptor, holds no reference, and forgets the file in its
 * last close (epoll(7), Q6), when no descriptor, no mapping and no message holds it, and before its memory
 * can become another file. kcmp(2) with KCMP_EPOLL_TFD compares a descriptor of any process with that file,
 * and fails with ENOENT once it is closed. Each reference costs one descriptor of ours. The instance is never
 * waited on, since a poll of NVIDIA's files takes their pending events away. */
#ifndef MGPU_WEAK_REF_H
#define MGPU_WEAK_REF_H
#include <stdbool.h>
#include <sys/types.h>

struct weak_ref {
    int epoll; /* -1: none */
    /* the descriptor it was taken by: a name inside the instance, even when the number is reused */
    int number;
    pid_t self; /* our process, kept: asking for it is a system call */
};

/* fd may be closed afterwards. -EPERM: files of its kind cannot be polled. -EMFILE, -ENOMEM, -ENOSPC; an
 * error also where the kernel lacks kcmp. */
int weak_ref_take(int fd, struct weak_ref *out);
void weak_ref_drop(struct weak_ref *w);

/* 0: behind fd of task `tid` is this file. 1: the file comes before it, 2: behind it, in an order of all
 * files that never changes. -ENOENT: closed. */
int weak_ref_compare_in(const struct weak_ref *w, pid_t tid, int fd);
/* The same of our own fd. */
int weak_ref_compare(const struct weak_ref *w, int fd);
bool weak_ref_lives(const struct weak_ref *w);
#endif
