/* Which open files of the driver tenants have, without keeping one of them open: for each a weak reference, which proves
 * identity and end, and a few places where it was last seen, from which it is fetched again.
 *
 * Cost of a lookup: one kcmp (three times a system call that does nothing: a microsecond at most) where this process used
 * this descriptor for this file before, else one for each halving of the table. Files are ordered as the kernel orders them, whoever's they are, so that a file that one
 * tenant passes to another is known as the first one's.
 *
 * nvidia-uvm's files cannot be polled, so there is no weak reference to them. Each is kept open by a descriptor of ours, by which
 * it is known wherever it comes up (KCMP_FILE), and let go when no process has another any more. If that was not its last close,
 * it is where nobody sees it: it stays in the table, with what hangs on it, until its tenant has ended. */
#ifndef MGPU_NVIDIA_FILES_H
#define MGPU_NVIDIA_FILES_H
#include "../boundary/files.h"
#include "nvidia_host.h"
#include "nvidia_weak_file.h"
#include <sys/stat.h>

/* A descriptor of somebody else. Threads can have descriptors of their own, so the thread comes first. */
struct fd_place {
    pid_t tid, tgid;
    int fd;
};

enum {
    NVIDIA_FILE_PLACES = 4,
    /* Files that cannot be polled, and those of one tenant. Half of them are for programs that end: they stay for a second. */
    NVIDIA_LOOSE_MAX = 2048,
    NVIDIA_TENANT_LOOSE_MAX = 128,
    /* So many looks have to miss one: while a process lives that has had it, and after the last of them. The second is for
     * what may go on for a moment when a process has ended, such as a look of somebody's at its memory. */
    NVIDIA_LOOSE_LOOKS = 10,
    NVIDIA_ENDED_LOOKS = 2,
    NVIDIA_FD_HINTS = 4096,
    NVIDIA_SLOT_BITS = 18, /* low bits of a file's id */
    NVIDIA_SLOT_MASK = (1 << NVIDIA_SLOT_BITS) - 1,
};
_Static_assert(1 << NVIDIA_SLOT_BITS == FILES_MAX, "a slot fits an id");

struct nvidia_file {
    struct open_file file; /* dev is the node's number, ino the id: those of an inode name no open file */
    struct weak_file weak;
    int pin; /* of a file that cannot be polled: our descriptor of it; -1: none, it has been let go */
    uint32_t fetched; /* duplicates of `pin` that are in use */
    uint32_t looks;   /* through all processes, in a row, that have missed it */
    bool ended, due;  /* at the last of them: every process that had it has ended; it may be let go */
    bool closing;     /* `pin` is being closed: it will have ended, or be where nobody sees it */
    struct fd_place place[NVIDIA_FILE_PLACES]; /* tgid 0: none; where it was last seen first */
    uint32_t places;
    uint32_t client;     /* of a control file that nobody sees: one that was made through it */
    bool lost;           /* it is at none of its places */
    uint64_t gone_at_ns; /* 0: it lives */
    uint32_t next;       /* free list, list of those that are gone, or of `hidden` */
};

struct nvidia_files {
    struct files *known;      /* the engine's table, which ends charges */
    pthread_mutex_t lock;     /* guards what follows; taken before known's */
    struct nvidia_file *slot; /* [0] unused */
    uint32_t *order, ordered; /* slots by the kernel's order of files */
    uint32_t loose[NVIDIA_LOOSE_MAX], loosened;
    struct fd_hint {
        pid_t tgid;
        int fd;
        uint32_t slot;
    } hint[NVIDIA_FD_HINTS];
    uint32_t hidden; /* control files that the next worker has not found, and that are alive */
    uint32_t high, free_head, gone_head, gone_tail, cursor;
    uint64_t sequence;
};

#define WITH_TABLE(f) LOCKED_(table_held, &(f)->lock)

int nvidia_files_init(struct nvidia_files *f, struct files *known);
void nvidia_files_destroy(struct nvidia_files *f);

/* The file behind our descriptor `ours`, fetched from `at`: known already, or new and tenant t's. kind and minor are those
 * of the node behind it. -EPERM: another tenant's. 1: it is new to us, and may be one that nobody sees, which has come up again:
 * it is taken for that in what the kernel says (below), until it is said that it is_new. */
int nvidia_files_identify(struct nvidia_files *f, struct tenant *t, const struct open_file *node, int ours,
                          struct fd_place at, struct open_file *out);
void nvidia_files_is_new(struct nvidia_files *f, uint64_t id);

/* An earlier worker's file, which is behind our descriptor `ours`, fetched from `at`: known again by its id. -EEXIST: that is
 * another known file. ours -1: one that is where nobody sees it; of a control file, client is one that was made through it. */
int nvidia_files_adopt(struct nvidia_files *f, const struct open_file *file, int ours, struct fd_place at,
                       uint32_t client);

/* What is behind our descriptor can be polled, and is known. */
bool nvidia_files_know(struct nvidia_files *f, int ours);
/* Notes that our descriptor `ours` was fetched from `at`, if it is a known file. */
void nvidia_files_note(struct nvidia_files *f, int ours, struct fd_place at);

/* A descriptor of the file, the caller's to close, and then to put back. -EBADF: gone. -EAGAIN: it lives where we do not know.
 * -EBUSY: it is one of these two, and which is about to be known. */
int nvidia_files_fetch(struct nvidia_files *f, uint64_t id);
void nvidia_files_put(struct nvidia_files *f, uint64_t id);

/* Looks at some of the files, in turn. True when one of them is lost. */
bool nvidia_files_sweep(struct nvidia_files *f);

/* Files that cannot be polled. mark: whether some are at none of their places. look: all processes have been looked through
 * since. next, after a look: one that has been missed often enough; 0: there is none. take: our descriptor of it, for the
 * caller to close, and to say whether that has closed the file, which is where nobody sees it otherwise; -1: it is not to be
 * let go any more. */
bool nvidia_files_mark_loose(struct nvidia_files *f);
void nvidia_files_look_loose(struct nvidia_files *f);
uint64_t nvidia_files_next_loose(struct nvidia_files *f);
int nvidia_files_take_loose(struct nvidia_files *f, uint64_t id);
void nvidia_files_let_go(struct nvidia_files *f, uint64_t id, bool closed);
/* The kernel says how many of nvidia-uvm are open, and we have a descriptor of each; none of these may be one that nobody sees. */
bool nvidia_files_see_all(struct nvidia_files *f, const struct nvidia_host *host);
/* Where that is so, those of nvidia-uvm that nobody sees are closed. */
void nvidia_files_end_unseen(struct nvidia_files *f, const struct nvidia_host *host);
/* The tenant has no process any more: those of its files that nobody sees are closed. */
void nvidia_files_tenant_ended(struct nvidia_files *f, const struct tenant *t);

/* A file that was gone by `before_ns`, each once: its id; 0: none. */
uint64_t nvidia_files_take_gone(struct nvidia_files *f, uint64_t before_ns);

/* A duplicate of somebody's descriptor. -ESRCH, -EBADF. */
int fd_place_fetch(const struct fd_place *at);
/* CLOCK_MONOTONIC. */
uint64_t nvidia_now_ns(void);
#endif
