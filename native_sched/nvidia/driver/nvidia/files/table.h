/* The slots of open files, and which of them are closed. files.h is what others ask of the table. */
#ifndef MGPU_NVIDIA_FILE_TABLE_H
#define MGPU_NVIDIA_FILE_TABLE_H
#include "base/mutex.h"
#include "native_sched/nvidia/account/files.h"
#include "native_sched/process/weak_ref.h"
#include "place.h"

enum {
    NVIDIA_FILE_PLACES = 4,
    /* Unpollable files, and those of one tenant. Half of them are for programs that exit: theirs stay for a
       second. A tenant's first ones are its own, whatever others have, for as many tenants as eight cards
       have; more come out of what is left beside the first ones of all. */
    NVIDIA_UNPOLLABLE_MAX = 4096,
    NVIDIA_TENANT_UNPOLLABLE_MAX = 128,
    NVIDIA_TENANT_UNPOLLABLE_SURE = 16,
    NVIDIA_UNPOLLABLE_TENANTS = 128,
    NVIDIA_UNPOLLABLE_COMMON = NVIDIA_UNPOLLABLE_MAX -
                               NVIDIA_UNPOLLABLE_TENANTS * NVIDIA_TENANT_UNPOLLABLE_SURE,
    /* So many scans in a row have to miss an unpollable file: while a process lives that had it, and after
       the last of them has exited. The second is more than one because another process may still use the
       first one's memory for a moment. */
    NVIDIA_MISSED_SCANS = 10,
    NVIDIA_EXITED_SCANS = 2,
    NVIDIA_FD_HINTS = 4096,
    NVIDIA_SLOT_BITS = 18, /* low bits of a file's id */
    NVIDIA_SLOT_MASK = (1 << NVIDIA_SLOT_BITS) - 1,
};
_Static_assert(1 << NVIDIA_SLOT_BITS == FILES_MAX, "a slot fits an id");

struct nvidia_file {
    struct open_file file; /* dev is the node's number, ino the id: those of an inode name no open file */
    struct weak_ref weak;
    int held_fd;           /* our descriptor of an unpollable or pinned file; -1: none, or it was released */
    uint32_t fetched;      /* of an unpollable file: duplicates of `held_fd` that are in use */
    uint32_t missed_scans; /* scans in a row that missed it */
    bool exited, due;      /* at the last scan: every process that had it has exited; it may be released */
    bool closing;          /* `held_fd` is being closed: afterwards the file is closed, or unlocated */
    struct fd_place place[NVIDIA_FILE_PLACES]; /* tgid 0: none; where it was last seen first */
    uint32_t places;
    uint32_t client; /* of an unlocated control file: a client that was made through it */
    bool unlocated;  /* none of its places has it */
    bool closed;     /* its last close has begun */
    uint32_t next;   /* links the free list, the closed files, or `unlocated` */
};

struct nvidia_files {
    struct files *known;      /* the account's table of open files */
    pthread_mutex_t lock;     /* guards what follows: docs/threads.md */
    struct nvidia_file *slot; /* [0] unused */
    uint32_t *order, ordered; /* slots by the kernel's order of files */
    uint32_t unpollable[NVIDIA_UNPOLLABLE_MAX], unpollables;
    struct fd_hint {
        pid_t tgid;
        int fd;
        uint32_t slot;
    } hint[NVIDIA_FD_HINTS];
    uint32_t unlocated; /* control files of the previous mgpud that are open and were not found */
    uint32_t high, free_head, closed_head, closed_tail, cursor;
    uint64_t sequence;
};

#define WITH_TABLE(f) LOCKED_(table_held, &(f)->lock)

/* Puts its latest place in front of the others. */
void nvidia_file_note_place(struct nvidia_file *file, struct fd_place at);
/* False when every process it was seen in has exited; a reused pid passes for the old process. */
bool nvidia_file_has_process(const struct nvidia_file *file);
/* An unpollable file, of a tenant that has `mine` of all. */
bool nvidia_may_have_another(uint32_t mine, uint32_t all);
/* The file is closed. Its caller takes it out of `order` or `unpollable`. */
void nvidia_files_retire(struct nvidia_files *f, uint32_t slot);
#endif
