#define _GNU_SOURCE
#include "files.h"
#include "unpollable.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A comparison is a kcmp, about a microsecond, and a mediated call may wait for the lock: so many under one
 * hold. A sweep checks SWEEP_FILES, and all that are left when it finds one closed, since files close in
 * bunches. */
enum { COMPARED_AT_ONCE = 8, SWEEP_FILES = 256 };

/* Outside the lock: a last close takes its time. */
static void close_any(int fd)
{
    if (fd >= 0)
        close(fd);
}

int nvidia_files_init(struct nvidia_files *f, struct files *known)
{
    memset(f, 0, sizeof(*f));
    f->known = known;
    f->slot = calloc(FILES_MAX, sizeof(*f->slot));
    f->order = calloc(FILES_MAX, sizeof(*f->order));
    mutex_init_inheriting(&f->lock);
    if (f->slot && f->order)
        return 0;
    nvidia_files_destroy(f);
    return -ENOMEM;
}

void nvidia_files_destroy(struct nvidia_files *f)
{
    for (uint32_t i = 0; i < f->ordered; i++) {
        weak_ref_drop(&f->slot[f->order[i]].weak);
        close_any(f->slot[f->order[i]].held_fd);
    }
    for (uint32_t i = 0; i < f->unpollables; i++)
        close_any(f->slot[f->unpollable[i]].held_fd);
    free(f->slot);
    free(f->order);
    pthread_mutex_destroy(&f->lock);
}

static struct nvidia_file *file_of(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file = &f->slot[id & NVIDIA_SLOT_MASK];

    assert_held(&f->lock);
    return id && file->file.id == id && !file->closed ? file : NULL;
}

static void forget_place(struct nvidia_file *file, const struct fd_place *at)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < file->places; i++)
        if (!fd_place_same(&file->place[i], at))
            file->place[kept++] = file->place[i];
    file->places = kept;
}

static struct fd_hint *hint_of(struct nvidia_files *f, const struct fd_place *at)
{
    return &f->hint[((uint32_t)at->tgid * 67 + (uint32_t)at->fd) % NVIDIA_FD_HINTS];
}

static void retire_ordered(struct nvidia_files *f, uint32_t i)
{
    nvidia_files_retire(f, f->order[i]);
    memmove(&f->order[i], &f->order[i + 1], (--f->ordered - i) * sizeof(*f->order));
}

static void put_in_order(struct nvidia_files *f, uint32_t where, uint32_t slot)
{
    memmove(&f->order[where + 1], &f->order[where], (f->ordered++ - where) * sizeof(*f->order));
    f->order[where] = slot;
}

/* Where in the order the file is (*found), or would be. A negative errno. */
static int64_t search(struct nvidia_files *f, int fd, bool *found)
{
    uint32_t low = 0, high = f->ordered;

    assert_held(&f->lock);
    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = weak_ref_compare(&f->slot[f->order[middle]].weak, fd);

        if (order == -ENOENT) {
            retire_ordered(f, middle);
            high--;
            continue;
        }
        if (order < 0)
            return order;
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order == 1)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The slot of a known file, 0, or a negative errno. *where: the place of a new one. */
static int64_t find(struct nvidia_files *f, int fd, const struct fd_place *at, uint32_t *where)
{
    const struct fd_hint *hint = hint_of(f, at);
    const struct nvidia_file *file = &f->slot[hint->slot];
    int64_t i;
    bool found;

    if (hint->slot && hint->tgid == at->tgid && hint->fd == at->fd && !file->closed &&
        (file->weak.epoll >= 0 ? weak_ref_compare(&file->weak, fd) == 0 : unpollable_is(file, fd)))
        return hint->slot;
    if ((i = search(f, fd, &found)) < 0)
        return i;
    *where = (uint32_t)i;
    return found ? f->order[i] : 0;
}

static uint32_t take_slot(struct nvidia_files *f)
{
    uint32_t slot = f->free_head;

    assert_held(&f->lock);
    if (slot)
        f->free_head = f->slot[slot].next;
    else if (f->high < FILES_MAX - 1)
        slot = ++f->high;
    return slot;
}

static void free_slot(struct nvidia_files *f, uint32_t slot)
{
    f->slot[slot] = (struct nvidia_file){.next = f->free_head, .weak = {.epoll = -1}, .held_fd = -1};
    f->free_head = slot;
}

/* A new slot, and its entry in the account's table. */
static int64_t add(struct nvidia_files *f, const struct open_file *node, int fd, struct weak_ref weak)
{
    uint32_t slot = take_slot(f);
    struct stat st;
    int e;

    if (!slot)
        return -ENFILE;
    if (fstat(fd, &st) < 0)
        st.st_rdev = 0;
    f->slot[slot] = (struct nvidia_file){.file = *node, .weak = weak, .held_fd = -1};
    f->slot[slot].file.id = f->slot[slot].file.ino = ++f->sequence << NVIDIA_SLOT_BITS | slot;
    f->slot[slot].file.dev = st.st_rdev;
    if ((e = files_add(f->known, &f->slot[slot].file)) == 0)
        return slot;
    free_slot(f, slot);
    return e;
}

static int64_t add_unpollable(struct nvidia_files *f, const struct open_file *node, int fd)
{
    int64_t slot;
    int held_fd;

    if (!nvidia_may_have_another(unpollable_count(f, node->tenant), f->unpollables))
        return -EMFILE;
    if ((held_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return -errno;
    if ((slot = add(f, node, fd, (struct weak_ref){.epoll = -1})) < 0) {
        close(held_fd);
        return slot;
    }
    f->slot[slot].held_fd = held_fd;
    f->unpollable[f->unpollables++] = (uint32_t)slot;
    return slot;
}

static int64_t add_ordered(struct nvidia_files *f, const struct open_file *node, int fd, uint32_t where)
{
    struct weak_ref weak;
    int64_t slot;
    int e = weak_ref_take(fd, &weak);

    if (e == -EPERM) {
        slot = unpollable_find(f, fd);
        return slot ? slot : add_unpollable(f, node, fd);
    }
    if (e < 0)
        return e;
    if ((slot = add(f, node, fd, weak)) < 0) {
        weak_ref_drop(&weak);
        return slot;
    }
    put_in_order(f, where, (uint32_t)slot);
    return slot;
}

int nvidia_files_identify(struct nvidia_files *f, struct tenant *t, const struct open_file *node, int ours,
                          struct fd_place at, bool may_be_new, struct open_file *out)
{
    const struct open_file fresh = {.tenant = t, .kind = node->kind, .minor = node->minor};
    uint32_t where = 0;
    int64_t slot;
    WITH_TABLE(f);

    if ((slot = find(f, ours, &at, &where)) == 0 && !may_be_new && !(slot = unpollable_find(f, ours)))
        return -ENOENT;
    if (slot == 0)
        slot = add_ordered(f, &fresh, ours, where);
    if (slot < 0)
        return (int)slot;
    if (f->slot[slot].file.tenant != t)
        return -EPERM;
    if (!f->slot[slot].places || !fd_place_same(&f->slot[slot].place[0], &at) || f->slot[slot].missed_scans)
        files_note_seen(f->known, f->slot[slot].file.id, at.tid, at.tgid, at.fd);
    nvidia_file_note_place(&f->slot[slot], at);
    *hint_of(f, &at) = (struct fd_hint){at.tgid, at.fd, (uint32_t)slot};
    *out = f->slot[slot].file;
    return 0;
}

/* Takes the slot that an id names out of the free ones. False when another file has it. */
static bool take_named_slot(struct nvidia_files *f, uint32_t slot)
{
    uint32_t *at = &f->free_head;

    while (f->high < slot)
        free_slot(f, ++f->high);
    while (*at && *at != slot)
        at = &f->slot[*at].next;
    if (!*at)
        return false;
    *at = f->slot[slot].next;
    return true;
}

int nvidia_files_insert(struct nvidia_files *f, uint32_t slot, int ours)
{
    struct nvidia_file *file = &f->slot[slot];
    int64_t where;
    bool found;
    int e;

    assert_held(&f->lock);
    /* Without a client the driver cannot be asked about it: it is kept until its tenant has exited. */
    if (ours < 0 && file->client) {
        file->next = f->unlocated;
        f->unlocated = slot;
        return 0;
    }
    e = ours < 0 ? -EPERM : weak_ref_take(ours, &file->weak);

    if (e == -EPERM && f->unpollables < NVIDIA_UNPOLLABLE_MAX && (ours < 0 || !unpollable_find(f, ours))) {
        if (ours >= 0 && (file->held_fd = fcntl(ours, F_DUPFD_CLOEXEC, 0)) < 0)
            return -errno;
        f->unpollable[f->unpollables++] = slot;
        return 0;
    }
    if (e < 0)
        return e;
    if ((where = search(f, ours, &found)) < 0 || found) {
        weak_ref_drop(&file->weak);
        return found ? -EEXIST : (int)where;
    }
    put_in_order(f, (uint32_t)where, slot);
    return 0;
}

int nvidia_files_adopt(struct nvidia_files *f, const struct open_file *file, int ours, struct fd_place at,
                       uint32_t client)
{
    uint32_t slot = file->id & NVIDIA_SLOT_MASK;
    int e;
    WITH_TABLE(f);

    if (!slot || !take_named_slot(f, slot))
        return -EEXIST;
    f->slot[slot] = (struct nvidia_file){
        .file = *file, .weak = {.epoll = -1}, .held_fd = -1, .client = client};
    if ((e = nvidia_files_insert(f, slot, ours)) < 0) {
        free_slot(f, slot);
        return e;
    }
    if (f->sequence < file->id >> NVIDIA_SLOT_BITS)
        f->sequence = file->id >> NVIDIA_SLOT_BITS;
    if (ours >= 0)
        nvidia_file_note_place(&f->slot[slot], at);
    return 0;
}

bool nvidia_files_know(struct nvidia_files *f, int ours)
{
    bool found;
    WITH_TABLE(f);

    return search(f, ours, &found) >= 0 && found;
}

bool nvidia_files_named(struct nvidia_files *f, int ours, struct open_file *out)
{
    int64_t i;
    bool found;
    WITH_TABLE(f);

    i = search(f, ours, &found);
    i = i >= 0 && found ? f->order[i] : unpollable_find(f, ours);
    if (i)
        *out = f->slot[i].file;
    return i;
}

void nvidia_files_note(struct nvidia_files *f, int ours, struct fd_place at)
{
    int64_t i;
    bool found;
    WITH_TABLE(f);

    i = search(f, ours, &found);
    if (i >= 0 && found)
        nvidia_file_note_place(&f->slot[f->order[i]], at);
    else if ((i = unpollable_find(f, ours))) {
        nvidia_file_note_place(&f->slot[i], at);
        files_note_seen(f->known, f->slot[i].file.id, at.tid, at.tgid, at.fd);
    }
}

/* 1: *at is the file's first place, or *ours a descriptor of it. 0: it has none. -EBADF: it is closed. */
static int first_place(struct nvidia_files *f, uint64_t id, struct fd_place *at, int *ours)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if (!(file = file_of(f, id)))
        return -EBADF;
    if (file->weak.epoll >= 0 && !weak_ref_lives(&file->weak))
        return -EBADF; /* the sweep retires it */
    if (file->held_fd >= 0) {
        *ours = fcntl(file->held_fd, F_DUPFD_CLOEXEC, 0);
        file->fetched += *ours >= 0 && file->weak.epoll < 0;
        return *ours < 0 ? -errno : 1;
    }
    if (file->closing)
        return -EBUSY;
    if (!file->places) {
        file->unlocated = true;
        return 0;
    }
    *at = file->place[0];
    return 1;
}

/* Whether the fetched descriptor names the file; if not, the place is forgotten. */
static bool confirm_place(struct nvidia_files *f, uint64_t id, const struct fd_place *at, int fd)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if (!(file = file_of(f, id)))
        return false;
    if (fd >= 0 && weak_ref_compare(&file->weak, fd) == 0)
        return true;
    forget_place(file, at);
    return false;
}

int nvidia_files_fetch(struct nvidia_files *f, uint64_t id)
{
    struct fd_place at;
    int e = 0, fd = -1;

    /* Bounded, since a tenant may make new places as fast as they turn out to be wrong. */
    for (int tries = 0; tries < 2 * NVIDIA_FILE_PLACES && (e = first_place(f, id, &at, &fd)) > 0; tries++) {
        if (fd >= 0)
            return fd;
        fd = fd_place_fetch(&at);
        if (confirm_place(f, id, &at, fd))
            return fd;
        if (fd >= 0)
            close(fd); /* outside the lock: the last close of a file of the driver takes its time */
        fd = -1;
    }
    return e < 0 ? e : -EAGAIN;
}

/* Our descriptor of a pinned file, for the caller to close, with `fd` in its place; -1: there is none. */
static int hold_instead(struct nvidia_files *f, uint64_t id, int fd)
{
    struct nvidia_file *file;
    int was = fd;
    WITH_TABLE(f);

    if ((file = file_of(f, id)) && file->weak.epoll >= 0) {
        was = file->held_fd;
        file->held_fd = fd;
    }
    return was;
}

int nvidia_files_pin(struct nvidia_files *f, uint64_t id)
{
    int fd = nvidia_files_fetch(f, id);

    if (fd < 0)
        return fd;
    nvidia_files_put(f, id);
    close_any(hold_instead(f, id, fd));
    return 0;
}

void nvidia_files_unpin(struct nvidia_files *f, uint64_t id)
{
    close_any(hold_instead(f, id, -1));
}

void nvidia_files_put(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if ((file = file_of(f, id)) && file->fetched)
        file->fetched--;
}

struct sweep {
    bool unlocated, closed;
};

/* Goes on where it was. False when that was the last file. */
static bool sweep_some(struct nvidia_files *f, struct sweep *seen)
{
    WITH_TABLE(f);

    for (int compared = 0; compared < COMPARED_AT_ONCE && f->cursor < f->ordered; compared++) {
        struct nvidia_file *file = &f->slot[f->order[f->cursor]];

        if (!weak_ref_lives(&file->weak)) {
            retire_ordered(f, f->cursor);
            seen->closed = true;
            continue;
        }
        /* The scheduler calls on control files alone. */
        file->unlocated |= file->file.kind == NODE_CTL && !nvidia_file_has_process(file);
        seen->unlocated |= file->unlocated;
        f->cursor++;
    }
    if (f->cursor < f->ordered)
        return true;
    f->cursor = 0;
    return false;
}

bool nvidia_files_sweep(struct nvidia_files *f)
{
    struct sweep seen = {.unlocated = false};

    for (int compared = 0; (compared < SWEEP_FILES || seen.closed) && sweep_some(f, &seen);
         compared += COMPARED_AT_ONCE)
        ;
    return seen.unlocated;
}

uint64_t nvidia_files_take_closed(struct nvidia_files *f)
{
    uint32_t slot;
    uint64_t id;
    WITH_TABLE(f);

    if (!(slot = f->closed_head))
        return 0;
    if (!(f->closed_head = f->slot[slot].next))
        f->closed_tail = 0;
    id = f->slot[slot].file.id;
    free_slot(f, slot);
    return id;
}
