/* The process behind a seccomp notification: its memory, its files, its names.
 *
 * A caller handle lives as long as a listener's thread and caches what is expensive to look up. Everything is
 * keyed by thread id and re-checked by the kernel on use: a pidfd of a dead thread fails with ESRCH.
 *
 * Memory is copied through a descriptor of /proc/TID/mem, which was opened while the notification was valid:
 * what is written never lands in a process that got the thread's id since (seccomp_unotify(2)). It names one
 * address space for good; of one that has ended it copies nothing, and is opened anew. A thread that calls,
 * then execs, while another process has its old memory (CLONE_VM) is read there: what such a caller gets
 * wrong is its own. */
#ifndef MGPU_CALLER_H
#define MGPU_CALLER_H
#include "process_id.h"
#include "weak_ref.h"
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CALLER_CACHE = 16, MARKED_FILES = 16 }; /* each holds a pidfd and its memory, or an epoll instance */

struct caller_entry {
    pid_t tid; /* 0: none */
    struct process_id who;
    int pidfd, memory;
    int64_t params_delta; /* where this thread's last params lay, relative to its outer struct */
    uint32_t params_bytes;
    bool once; /* pidfd names the process, not the thread: good for notification `served` only */
    uint64_t served;
};

/* What fstat says of a file as long as it is open. */
struct file_identity {
    uint64_t dev, ino;
};

struct marked_file {
    struct weak_ref mark;
    struct file_identity identity;
    uint32_t missed; /* comparisons in a row that found another file */
};

struct caller {
    int listener;
    struct seccomp_notif *req; /* the notification being served */
    struct caller_entry entry[CALLER_CACHE];
    struct marked_file marked[MARKED_FILES];
    bool cannot_mark; /* the kernel cannot compare files */
};

void caller_init(struct caller *c, int listener, struct seccomp_notif *req);
void caller_destroy(struct caller *c);

/* True while the notified call still waits for an answer: only then does the thread id name the caller. */
bool caller_waits(const struct caller *c);

/* The process (thread group) of the caller, 0 when it is gone. */
pid_t caller_tgid(struct caller *c);

/* Names of the caller's process in every pid namespace, outermost first. */
int caller_process_id(struct caller *c, struct process_id *out);

/* The same of another thread than the caller's. */
int caller_process_id_of(pid_t tid, struct process_id *out);

/* A duplicate of the caller's fd, close-on-exec: the same open file. */
int caller_fetch_fd(struct caller *c, int fd);

/* True when behind the caller's fd is an open file that was remembered: then *out is what it was remembered
 * with. Three system calls less than fetching it and looking. */
bool caller_recall_file(struct caller *c, int fd, struct file_identity *out);

/* Remembers the caller's file behind fd, of which `ours` is a duplicate, or not: it is only for speed. Does
 * not keep the file open. */
void caller_remember_file(struct caller *c, int fd, int ours, const struct file_identity *identity);

/* Replaces the caller's fd by `ours`, keeping its close-on-exec flag. */
int caller_replace_fd(struct caller *c, int fd, int ours);

/* Copies the caller's memory into ours. 0 or -EFAULT. */
int caller_read(struct caller *c, uint64_t at, void *to, size_t bytes);
/* Reads the first and the last of `bytes` into their places in `to`, in one copy. */
int caller_read_ends(struct caller *c, uint64_t at, uint8_t *to, size_t first, size_t bytes, size_t last);

/* Reads the outer struct and, in the same system call, guesses at the parameters its pointer will name: a
 * thread usually calls again from the same frame. Where both lie close together one span of memory is copied.
 * *guessed_at and *guessed_bytes say what lies in params (0 bytes: nothing). */
int caller_read_outer(struct caller *c, uint64_t at, void *outer, size_t bytes, void *params,
                      size_t params_max, uint64_t *guessed_at, size_t *guessed_bytes);
void caller_learn_params(struct caller *c, uint64_t outer_at, uint64_t params_at, uint32_t bytes);

/* Writes both back in one call; either may be empty. */
int caller_write_both(struct caller *c, uint64_t at, const void *outer, size_t bytes, uint64_t params_at,
                      const void *params, size_t params_bytes);
#endif
