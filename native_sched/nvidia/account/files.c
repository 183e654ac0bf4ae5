#include "files.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static const struct slab_layout slots = {
    .record_bytes = sizeof(struct open_file),
    .slots = FILES_MAX,
    .check_at = offsetof(struct open_file, check),
    .to = offsetof(struct open_file, check),
    .next_at = offsetof(struct open_file, next),
};

#define WITH_FILES(f) LOCKED_(files_held, &(f)->lock)

/* Both keys are given out one after the other, so their low bits spread by themselves, and the few files that
 * are in use lie in few pages of the table: every mediated call looks here. */
static uint32_t *bucket_of(uint32_t *buckets, uint64_t key)
{
    return &buckets[key & (FILES_BUCKETS - 1)];
}

static void link_in(struct files *f, uint32_t i)
{
    uint32_t *head = bucket_of(f->bucket, f->slot[i].ino),
             *head_by_id = bucket_of(f->bucket_by_id, f->slot[i].id);

    f->slot[i].next = *head;
    f->slot[i].next_by_id = *head_by_id;
    *head = *head_by_id = i;
}

static void recover(struct files *f)
{
    slab_recover(&f->slab);
    for (uint32_t i = 1; i <= f->slab.high; i++) {
        f->slot[i].tenant = NULL;
        if (f->slot[i].check)
            link_in(f, i);
    }
}

int files_init(struct files *f, int journal)
{
    static const struct store_layout layout = {
        .kind = STORE_FILES,
        .record_bytes = sizeof(struct open_file),
        .max_bytes = (FILES_MAX + 1) * sizeof(struct open_file),
    };
    int e;

    *f = (struct files){.store.fd = -1};
    mutex_init_inheriting(&f->lock);
    if ((e = store_open(&f->store, journal, "files", &layout)) == 0 &&
        (e = store_reach(&f->store, sizeof(struct open_file))) == 0) {
        f->slot = (struct open_file *)(void *)f->store.at;
        f->slab = (struct slab){.layout = &slots, .store = &f->store, .at = f->store.at};
        f->bucket = calloc(FILES_BUCKETS, sizeof(*f->bucket));
        f->bucket_by_id = calloc(FILES_BUCKETS, sizeof(*f->bucket_by_id));
        e = f->bucket && f->bucket_by_id ? 0 : -ENOMEM;
    }
    if (e < 0)
        files_destroy(f);
    else if (f->store.found)
        recover(f);
    return e;
}

void files_destroy(struct files *f)
{
    store_close(&f->store);
    free(f->bucket);
    free(f->bucket_by_id);
    pthread_mutex_destroy(&f->lock);
}

int files_add(struct files *f, const struct open_file *file)
{
    int64_t i;
    WITH_FILES(f);

    if (file->tenant->files == TENANT_FILES_MAX)
        return -EMFILE;
    if ((i = slab_take(&f->slab)) < 0)
        return (int)i;
    f->slot[i] = *file;
    f->slot[i].check = 0;
    f->slot[i].tenant_id = file->tenant->id;
    link_in(f, (uint32_t)i);
    slab_commit(&f->slab, (uint32_t)i);
    file->tenant->files++;
    return 0;
}

bool files_find(struct files *f, uint64_t dev, uint64_t ino, struct open_file *out)
{
    WITH_FILES(f);
    uint32_t i = *bucket_of(f->bucket, ino);

    while (i && (f->slot[i].ino != ino || f->slot[i].dev != dev))
        i = f->slot[i].next;
    if (i)
        *out = f->slot[i];
    return i;
}

bool files_open(struct files *f, const struct open_file *file)
{
    struct open_file now;

    return files_find(f, file->dev, file->ino, &now) && now.id == file->id;
}

static uint32_t slot_by_id(const struct files *f, uint64_t id)
{
    uint32_t i = *bucket_of(f->bucket_by_id, id);

    while (i && f->slot[i].id != id)
        i = f->slot[i].next_by_id;
    return i;
}

void files_register(struct files *f, uint64_t id, uint64_t control)
{
    WITH_FILES(f);
    uint32_t i = slot_by_id(f, id);

    if (i)
        f->slot[i].control = control;
}

void files_note_seen(struct files *f, uint64_t id, pid_t tid, pid_t tgid, int fd)
{
    WITH_FILES(f);
    uint32_t i = slot_by_id(f, id);

    if (!i)
        return;
    f->slot[i].seen_tid = tid;
    f->slot[i].seen_tgid = tgid;
    f->slot[i].seen_fd = fd;
}

bool files_by_id(struct files *f, uint64_t id, struct open_file *out)
{
    WITH_FILES(f);
    uint32_t i = slot_by_id(f, id);

    if (i)
        *out = f->slot[i];
    return i;
}

static void take(struct files *f, uint32_t i, struct open_file *out)
{
    uint32_t *at;

    *out = f->slot[i];
    if (out->tenant)
        out->tenant->files_closing++;
    slab_retract(&f->slab, i);
    for (at = bucket_of(f->bucket_by_id, out->id); *at != i; at = &f->slot[*at].next_by_id)
        ;
    *at = out->next_by_id;
    for (at = bucket_of(f->bucket, out->ino); *at != i; at = &f->slot[*at].next)
        ;
    *at = out->next;
    slab_put(&f->slab, i);
}

bool files_take(struct files *f, uint64_t id, struct open_file *out)
{
    WITH_FILES(f);
    uint32_t i = slot_by_id(f, id);

    if (i)
        take(f, i, out);
    return i;
}

bool files_take_of(struct files *f, uint64_t id, const struct tenant *t, struct open_file *out)
{
    WITH_FILES(f);
    uint32_t i = slot_by_id(f, id);
    bool is_theirs = i && f->slot[i].tenant == t;

    if (is_theirs)
        take(f, i, out);
    return is_theirs;
}

uint32_t files_adopt(struct files *f, struct tenant *t)
{
    WITH_FILES(f);

    for (uint32_t i = 1; i <= f->slab.high; i++) {
        if (!f->slot[i].check || f->slot[i].tenant || f->slot[i].tenant_id != t->id)
            continue;
        f->slot[i].tenant = t;
        t->files++;
    }
    return t->files;
}

static uint64_t orphan(struct files *f)
{
    WITH_FILES(f);

    for (uint32_t i = 1; i <= f->slab.high; i++)
        if (f->slot[i].check && !f->slot[i].tenant)
            return f->slot[i].id;
    return 0;
}

uint32_t files_forget_orphans(struct files *f)
{
    struct open_file file;
    uint32_t n = 0;
    uint64_t id;

    while ((id = orphan(f)) && files_take(f, id, &file))
        n++;
    return n;
}

bool files_after(struct files *f, const struct tenant *t, uint64_t id, struct open_file *out)
{
    WITH_FILES(f);
    uint32_t found = 0;

    for (uint32_t i = 1; i <= f->slab.high; i++)
        if (f->slot[i].check && f->slot[i].tenant == t && f->slot[i].id > id &&
            (!found || f->slot[i].id < f->slot[found].id))
            found = i;
    if (found)
        *out = f->slot[found];
    return found;
}

uint32_t files_list(struct files *f, const struct tenant *t, uint32_t *at, struct open_file *out,
                    uint32_t max)
{
    WITH_FILES(f);
    uint32_t n = 0;

    while (n < max && *at < f->slab.high) {
        const struct open_file *file = &f->slot[++*at];

        if (file->check && file->tenant == t)
            out[n++] = *file;
    }
    return n;
}

void files_forget(struct files *f, struct tenant *t)
{
    WITH_FILES(f);

    t->files--;
    t->files_closing--;
}

uint32_t files_of(struct files *f, const struct tenant *t)
{
    WITH_FILES(f);

    return t->files;
}

bool files_closing(struct files *f, const struct tenant *t)
{
    WITH_FILES(f);

    return t->files_closing;
}
