/* Open files of the driver, by the identity of the file itself rather than by an fd number: dup, fork and
 * SCM_RIGHTS move fd numbers about, the file stays the same. Thread safe, fixed capacity. In a journal the
 * table is there for the next mgpud too (journal/store.h). */
#ifndef MGPU_FILES_H
#define MGPU_FILES_H
#include "native_sched/journal/slab.h"
#include "tenant.h"

/* Unused slots take no memory. A limit for each tenant keeps one from taking every slot. */
enum { TENANT_FILES_MAX = 4096, FILES_MAX = 64 * TENANT_FILES_MAX, FILES_BUCKETS = 2 * FILES_MAX };

struct open_file {
    uint64_t id;       /* the driver's name of it, never reused */
    uint64_t dev, ino; /* identity of the file the container holds */
    uint64_t tenant_id;
    enum node_kind kind;
    uint32_t minor;
    uint32_t check;   /* of what is above, stored last; 0: a free slot */
    uint64_t control; /* a card's file: id of the control file it was registered with, 0: none */
    /* A descriptor of it in some process, where the next mgpud looks; tid 0: none. */
    int32_t seen_tid, seen_tgid, seen_fd;

    struct tenant *tenant; /* NULL: an orphan of the previous mgpud's */
    uint32_t next, next_by_id;
};

struct files {
    pthread_mutex_t lock;
    struct open_file *slot; /* [0] unused */
    uint32_t *bucket, *bucket_by_id;
    struct slab slab;
    struct store store;
};

/* journal: a folder, or -1. What the previous mgpud left there is in the table, as orphans. */
int files_init(struct files *f, int journal);
void files_destroy(struct files *f);
/* -EMFILE when the tenant has as many as it may, -ENFILE when all are taken, -ENOSPC when the journal is
 * full. */
int files_add(struct files *f, const struct open_file *file);
bool files_find(struct files *f, uint64_t dev, uint64_t ino, struct open_file *out);
bool files_open(struct files *f, const struct open_file *file); /* it has not gone since it was found */
/* Says that the card's file is registered with a control file. */
void files_register(struct files *f, uint64_t id, uint64_t control);
void files_note_seen(struct files *f, uint64_t id, pid_t tid, pid_t tgid, int fd);
bool files_by_id(struct files *f, uint64_t id, struct open_file *out);
bool files_take(struct files *f, uint64_t id, struct open_file *out); /* removes it */

/* The same, if it is that tenant's; NULL: an orphan. */
bool files_take_of(struct files *f, uint64_t id, const struct tenant *t, struct open_file *out);

/* The tenant adopts its files: how many there are. */
uint32_t files_adopt(struct files *f, struct tenant *t);
/* Removes the orphans that are left, whose tenants have ended: how many. */
uint32_t files_forget_orphans(struct files *f);
/* Some file of the tenant's with an id above `id`, by rising ids. False when there is none. */
bool files_after(struct files *f, const struct tenant *t, uint64_t id, struct open_file *out);

/* Some of the tenant's files, from *at on, which is 0 first: how many; 0: there are no others. */
uint32_t files_list(struct files *f, const struct tenant *t, uint32_t *at, struct open_file *out,
                    uint32_t max);

/* A taken file counts as its tenant's until its charges have ended. */
void files_forget(struct files *f, struct tenant *t);
uint32_t files_of(struct files *f, const struct tenant *t);
bool files_closing(struct files *f,
                   const struct tenant *t); /* some are taken, and their charges have not ended */
#endif
