#define _GNU_SOURCE
#include "nvidia_files.h"
#include "../base/clock.h"
#include "nvidia_loose.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A look is a kcmp, about a microsecond. The lock is held over so many: a mediated call may wait for it. A sweep looks at
 * SWEEP_FILES, and at all that are left when it finds one gone: they go in bunches. */
enum { LOOKS_AT_ONCE = 8, SWEEP_FILES = 256 };

uint64_t nvidia_now_ns(void)
{
    return monotonic_ns();
}

int nvidia_files_init(struct nvidia_files *f, struct files *known)
{
    memset(f, 0, sizeof(*f));
    f->known = known;
    f->slot = calloc(FILES_MAX, sizeof(*f->slot));
    f->order = calloc(FILES_MAX, sizeof(*f->order));
    pthread_mutex_init(&f->lock, NULL);
    if (f->slot && f->order)
        return 0;
    nvidia_files_destroy(f);
    return -ENOMEM;
}

void nvidia_files_destroy(struct nvidia_files *f)
{
    for (uint32_t i = 0; i < f->ordered; i++)
        weak_file_drop(&f->slot[f->order[i]].weak);
    for (uint32_t i = 0; i < f->loosened; i++)
        if (f->slot[f->loose[i]].pin >= 0)
            close(f->slot[f->loose[i]].pin);
    free(f->slot);
    free(f->order);
    pthread_mutex_destroy(&f->lock);
}

static struct nvidia_file *file_of(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file = &f->slot[id & NVIDIA_SLOT_MASK];

    return id && file->file.id == id && !file->gone_at_ns ? file : NULL;
}

static bool same_place(const struct fd_place *a, const struct fd_place *b)
{
    return a->tgid == b->tgid && a->fd == b->fd && a->tid == b->tid;
}

/* To the front. The last one falls off; a scan finds it again. */
void nvidia_file_note_place(struct nvidia_file *file, struct fd_place at)
{
    uint32_t i = 0;

    while (i < file->places && !same_place(&file->place[i], &at))
        i++;
    if (i == file->places && i < NVIDIA_FILE_PLACES)
        file->places++;
    else if (i == NVIDIA_FILE_PLACES)
        i--;
    memmove(&file->place[1], &file->place[0], i * sizeof(at));
    file->place[0] = at;
    file->lost = false;
    file->looks = 0;
}

static void forget_place(struct nvidia_file *file, const struct fd_place *at)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < file->places; i++)
        if (!same_place(&file->place[i], at))
            file->place[kept++] = file->place[i];
    file->places = kept;
}

static struct fd_hint *hint_of(struct nvidia_files *f, const struct fd_place *at)
{
    return &f->hint[((uint32_t)at->tgid * 67 + (uint32_t)at->fd) % NVIDIA_FD_HINTS];
}

void nvidia_files_bury(struct nvidia_files *f, uint32_t slot)
{
    struct nvidia_file *file = &f->slot[slot];

    weak_file_drop(&file->weak);
    file->gone_at_ns = nvidia_now_ns();
    file->lost = false;
    file->next = 0;
    if (f->gone_tail)
        f->slot[f->gone_tail].next = slot;
    else
        f->gone_head = slot;
    f->gone_tail = slot;
}

static void bury_ordered(struct nvidia_files *f, uint32_t i)
{
    nvidia_files_bury(f, f->order[i]);
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

    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = weak_file_compare(&f->slot[f->order[middle]].weak, fd);

        if (order == -ENOENT) {
            bury_ordered(f, middle);
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

/* The slot of a known file, 0, or a negative errno. *where: where a new one goes. */
static int64_t find(struct nvidia_files *f, int fd, const struct fd_place *at, uint32_t *where)
{
    const struct fd_hint *hint = hint_of(f, at);
    const struct nvidia_file *file = &f->slot[hint->slot];
    int64_t i;
    bool found;

    if (hint->slot && hint->tgid == at->tgid && hint->fd == at->fd && !file->gone_at_ns &&
        (file->weak.epoll >= 0 ? weak_file_compare(&file->weak, fd) == 0 : loose_file_is(file, fd)))
        return hint->slot;
    if ((i = search(f, fd, &found)) < 0)
        return i;
    *where = (uint32_t)i;
    return found ? f->order[i] : 0;
}

static uint32_t take_slot(struct nvidia_files *f)
{
    uint32_t slot = f->free_head;

    if (slot)
        f->free_head = f->slot[slot].next;
    else if (f->high < FILES_MAX - 1)
        slot = ++f->high;
    return slot;
}

static void free_slot(struct nvidia_files *f, uint32_t slot)
{
    f->slot[slot] = (struct nvidia_file){.next = f->free_head, .weak = {.epoll = -1}, .pin = -1};
    f->free_head = slot;
}

/* A new slot, known to the engine. */
static int64_t add(struct nvidia_files *f, const struct open_file *node, int fd, struct weak_file weak)
{
    uint32_t slot = take_slot(f);
    struct stat st;
    int e;

    if (!slot)
        return -ENFILE;
    if (fstat(fd, &st) < 0)
        st.st_rdev = 0;
    f->slot[slot] = (struct nvidia_file){.file = *node, .weak = weak, .pin = -1};
    f->slot[slot].file.id = f->slot[slot].file.ino = ++f->sequence << NVIDIA_SLOT_BITS | slot;
    f->slot[slot].file.dev = st.st_rdev;
    if ((e = files_add(f->known, &f->slot[slot].file)) == 0)
        return slot;
    free_slot(f, slot);
    return e;
}

static int64_t add_loose(struct nvidia_files *f, const struct open_file *node, int fd)
{
    int64_t slot;
    int pin;

    if (f->loosened == NVIDIA_LOOSE_MAX || loose_files_of(f, node->tenant) == NVIDIA_TENANT_LOOSE_MAX)
        return -EMFILE;
    if ((pin = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return -errno;
    if ((slot = add(f, node, fd, (struct weak_file){.epoll = -1})) < 0) {
        close(pin);
        return slot;
    }
    f->slot[slot].pin = pin;
    f->loose[f->loosened++] = (uint32_t)slot;
    return slot;
}

static int64_t add_ordered(struct nvidia_files *f, const struct open_file *node, int fd, uint32_t where)
{
    struct weak_file weak;
    int64_t slot;
    int e = weak_file_take(fd, &weak);

    if (e == -EPERM) {
        slot = loose_file_find(f, fd);
        return slot ? slot : add_loose(f, node, fd);
    }
    if (e < 0)
        return e;
    if ((slot = add(f, node, fd, weak)) < 0) {
        weak_file_drop(&weak);
        return slot;
    }
    put_in_order(f, where, (uint32_t)slot);
    return slot;
}

int nvidia_files_identify(struct nvidia_files *f, struct tenant *t, const struct open_file *node, int ours,
                          struct fd_place at, struct open_file *out)
{
    struct open_file fresh = {.tenant = t, .kind = node->kind, .minor = node->minor};
    uint64_t newest;
    uint32_t where = 0;
    int64_t slot;
    WITH_TABLE(f);

    newest = f->sequence;
    if ((slot = find(f, ours, &at, &where)) == 0) {
        fresh.may_be_unseen = node->kind == NODE_UVM && loose_files_unseen(f);
        slot = add_ordered(f, &fresh, ours, where);
    }
    if (slot < 0)
        return (int)slot;
    if (f->slot[slot].file.tenant != t)
        return -EPERM;
    if (!f->slot[slot].places || !same_place(&f->slot[slot].place[0], &at) || f->slot[slot].looks)
        files_note_seen(f->known, f->slot[slot].file.id, at.tid, at.tgid, at.fd);
    nvidia_file_note_place(&f->slot[slot], at);
    *hint_of(f, &at) = (struct fd_hint){at.tgid, at.fd, (uint32_t)slot};
    *out = f->slot[slot].file;
    return out->may_be_unseen && out->id >> NVIDIA_SLOT_BITS > newest;
}

void nvidia_files_is_new(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if ((file = file_of(f, id)))
        file->file.may_be_unseen = false;
    files_note_new(f->known, id);
}

/* The slot that an id names, out of the free ones. False when another file has it. */
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

    /* Without a client the driver cannot be asked about it: it is kept until its tenant has ended. */
    if (ours < 0 && file->client) {
        file->next = f->hidden;
        f->hidden = slot;
        return 0;
    }
    e = ours < 0 ? -EPERM : weak_file_take(ours, &file->weak);

    if (e == -EPERM && f->loosened < NVIDIA_LOOSE_MAX && (ours < 0 || !loose_file_find(f, ours))) {
        if (ours >= 0 && (file->pin = fcntl(ours, F_DUPFD_CLOEXEC, 0)) < 0)
            return -errno;
        f->loose[f->loosened++] = slot;
        return 0;
    }
    if (e < 0)
        return e;
    if ((where = search(f, ours, &found)) < 0 || found) {
        weak_file_drop(&file->weak);
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
    f->slot[slot] = (struct nvidia_file){.file = *file, .weak = {.epoll = -1}, .pin = -1, .client = client};
    if ((e = nvidia_files_insert(f, slot, ours)) < 0) {
        free_slot(f, slot);
        return e;
    }
    if (f->sequence < file->id >> NVIDIA_SLOT_BITS)
        f->sequence = file->id >> NVIDIA_SLOT_BITS;
    if (ours >= 0) {
        nvidia_file_note_place(&f->slot[slot], at);
        /* Another one can have been put there while nobody looked. */
        files_note_flags(f->known, file->id, UVM_FLAGS_UNKNOWN);
    }
    return 0;
}

bool nvidia_files_know(struct nvidia_files *f, int ours)
{
    bool found;
    WITH_TABLE(f);

    return search(f, ours, &found) >= 0 && found;
}

void nvidia_files_note(struct nvidia_files *f, int ours, struct fd_place at)
{
    int64_t i;
    bool found;
    WITH_TABLE(f);

    i = search(f, ours, &found);
    if (i >= 0 && found)
        nvidia_file_note_place(&f->slot[f->order[i]], at);
    else if ((i = loose_file_find(f, ours))) {
        nvidia_file_note_place(&f->slot[i], at);
        files_note_seen(f->known, f->slot[i].file.id, at.tid, at.tgid, at.fd);
    }
}

/* 1: *at is the file's first place, or *ours a descriptor of it. 0: it has none. -EBADF: it is gone. */
static int first_place(struct nvidia_files *f, uint64_t id, struct fd_place *at, int *ours)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if (!(file = file_of(f, id)))
        return -EBADF;
    if (file->weak.epoll >= 0 && !weak_file_lives(&file->weak))
        return -EBADF; /* the sweep buries it */
    if (file->pin >= 0) {
        *ours = fcntl(file->pin, F_DUPFD_CLOEXEC, 0);
        file->fetched += *ours >= 0;
        return *ours < 0 ? -errno : 1;
    }
    if (file->closing)
        return -EBUSY;
    if (!file->places) {
        file->lost = true;
        return 0;
    }
    *at = file->place[0];
    return 1;
}

/* Whether what was fetched is the file. If not it is there no more. */
static bool confirm_place(struct nvidia_files *f, uint64_t id, const struct fd_place *at, int fd)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if (!(file = file_of(f, id)))
        return false;
    if (fd >= 0 && weak_file_compare(&file->weak, fd) == 0)
        return true;
    forget_place(file, at);
    return false;
}

int nvidia_files_fetch(struct nvidia_files *f, uint64_t id)
{
    struct fd_place at;
    int e = 0, fd = -1;

    /* A tenant that notes new places as fast as they turn out to be wrong gets no more of our time. */
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

void nvidia_files_put(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    if ((file = file_of(f, id)) && file->fetched)
        file->fetched--;
}

struct sweep {
    bool lost, gone;
};

/* Goes on where it was. False when that was the last file. */
static bool sweep_some(struct nvidia_files *f, struct sweep *seen)
{
    WITH_TABLE(f);

    for (int looks = 0; looks < LOOKS_AT_ONCE && f->cursor < f->ordered; looks++) {
        struct nvidia_file *file = &f->slot[f->order[f->cursor]];

        if (!weak_file_lives(&file->weak)) {
            bury_ordered(f, f->cursor);
            seen->gone = true;
            continue;
        }
        /* Calls of the scheduler's are made on control files alone. */
        file->lost |= file->file.kind == NODE_CTL && !nvidia_file_has_process(file);
        seen->lost |= file->lost;
        f->cursor++;
    }
    if (f->cursor < f->ordered)
        return true;
    f->cursor = 0;
    return false;
}

bool nvidia_files_sweep(struct nvidia_files *f)
{
    struct sweep seen = {.lost = false};

    for (int looks = 0; (looks < SWEEP_FILES || seen.gone) && sweep_some(f, &seen); looks += LOOKS_AT_ONCE)
        ;
    return seen.lost;
}

uint64_t nvidia_files_take_gone(struct nvidia_files *f, uint64_t before_ns)
{
    uint32_t slot;
    uint64_t id;
    WITH_TABLE(f);

    slot = f->gone_head;
    if (!slot || f->slot[slot].gone_at_ns > before_ns)
        return 0;
    if (!(f->gone_head = f->slot[slot].next))
        f->gone_tail = 0;
    id = f->slot[slot].file.id;
    free_slot(f, slot);
    return id;
}
