/* Recognises an open file behind another process's fd in one system call, without keeping that file open.
 *
 * An epoll instance knows the files it watches but does not hold them: with a file's last close the kernel takes it
 * off the list (epoll(7), Q6), before its memory can become another file. kcmp(2) with KCMP_EPOLL_TFD compares what
 * is behind an fd of any process with what an instance watches: "same" can only be said of the file that was marked. */
#ifndef MGPU_FILE_MARK_H
#define MGPU_FILE_MARK_H
#include <sys/types.h>

struct file_mark {
    int epoll;   /* -1: marks nothing */
    int watched; /* the fd it was marked by, closed since: epoll's name of it */
    pid_t self;  /* our process, kept: asking for it is a system call */
};

/* Marks the file behind our fd. 0 or a negative errno, also where the kernel lacks kcmp. */
int file_mark_set(struct file_mark *m, int fd);
void file_mark_clear(struct file_mark *m);

/* 0: behind fd of task `tid` is the marked file. Positive: another one. -ENOENT: the marked file is closed. */
int file_mark_compare(const struct file_mark *m, pid_t tid, int fd);
#endif
