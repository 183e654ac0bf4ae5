#define _GNU_SOURCE
#include "unpollable.h"
#include "native_sched/nvidia/driver/nvidia/host/uvm.h"
#include <errno.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool same_file(pid_t pid, int theirs, int ours)
{
    return syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, (unsigned long)ours, (unsigned long)theirs) == 0;
}

bool unpollable_is(const struct nvidia_file *file, int fd)
{
    return file->held_fd >= 0 && same_file(getpid(), fd, file->held_fd);
}

uint32_t unpollable_find(const struct nvidia_files *f, int fd)
{
    assert_held(&f->lock);
    for (uint32_t i = 0; i < f->unpollables; i++)
        if (unpollable_is(&f->slot[f->unpollable[i]], fd))
            return f->unpollable[i];
    return 0;
}

uint32_t unpollable_count(const struct nvidia_files *f, const struct tenant *t)
{
    uint32_t n = 0;

    assert_held(&f->lock);
    for (uint32_t i = 0; i < f->unpollables; i++)
        n += f->slot[f->unpollable[i]].file.tenant == t;
    return n;
}

const struct fd_place *unpollable_place(const struct nvidia_file *file)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (same_file(file->place[i].tid, file->place[i].fd, file->held_fd) ||
            same_file(file->place[i].tgid, file->place[i].fd, file->held_fd))
            return &file->place[i];
    return NULL;
}

/* The next mgpud looks for the file at that place. A file without a place has none in the account, since
 * another file there would pass for it. */
static void note_place(struct nvidia_files *f, const struct nvidia_file *file, const struct fd_place *at)
{
    static const struct fd_place none;

    at = at ? at : &none;
    files_note_seen(f->known, file->file.id, at->tid, at->tgid, at->fd);
}

bool unpollable_mark(struct nvidia_files *f)
{
    bool any = false;
    WITH_TABLE(f);

    for (uint32_t i = 0; i < f->unpollables; i++) {
        struct nvidia_file *file = &f->slot[f->unpollable[i]];
        const struct fd_place *at = file->held_fd >= 0 ? unpollable_place(file) : NULL;

        file->unlocated = file->held_fd >= 0 && !at;
        any |= file->unlocated;
        if (at && file->missed_scans) {
            file->missed_scans = 0;
            note_place(f, file, at);
        }
    }
    return any;
}

/* A file that UVM_MM_INITIALIZE was called on holds another one, and its process's memory with all that is
 * mapped there (uvm_api_mm_initialize() and uvm_release_mm() of NVIDIA's open-gpu-kernel-modules). It is the
 * younger of the two, so the older one waits for it. */
static void defer_older(struct nvidia_files *f, const struct nvidia_file *than)
{
    assert_held(&f->lock);
    for (uint32_t i = 0; i < f->unpollables; i++) {
        struct nvidia_file *file = &f->slot[f->unpollable[i]];

        if (file->file.tenant == than->file.tenant && file->file.id < than->file.id)
            file->due = false;
    }
}

void unpollable_scanned(struct nvidia_files *f, bool usual)
{
    WITH_TABLE(f);

    /* A process that has exited has closed all of its descriptors: checked before the places are. */
    for (uint32_t i = 0; i < f->unpollables; i++)
        f->slot[f->unpollable[i]].exited = !nvidia_file_has_process(&f->slot[f->unpollable[i]]);
    for (uint32_t i = 0; i < f->unpollables; i++) {
        struct nvidia_file *file = &f->slot[f->unpollable[i]];
        bool missed = file->unlocated;

        file->unlocated = file->held_fd >= 0 && !unpollable_place(file);
        if (missed && file->unlocated && (usual || file->exited) && !file->missed_scans++)
            note_place(f, file, NULL);
        file->due = file->unlocated &&
                    file->missed_scans >= (file->exited ? NVIDIA_EXITED_SCANS : NVIDIA_MISSED_SCANS);
    }
    for (uint32_t i = 0; i < f->unpollables; i++)
        if (f->slot[f->unpollable[i]].unlocated && !f->slot[f->unpollable[i]].due)
            defer_older(f, &f->slot[f->unpollable[i]]);
}

static struct nvidia_file *youngest_due(struct nvidia_files *f)
{
    struct nvidia_file *found = NULL;

    for (uint32_t i = 0; i < f->unpollables; i++) {
        struct nvidia_file *file = &f->slot[f->unpollable[i]];

        if (file->due && (!found || found->file.id < file->file.id))
            found = file;
    }
    return found;
}

uint64_t unpollable_next_due(struct nvidia_files *f)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    while ((file = youngest_due(f)) && (file->fetched || !file->unlocated)) {
        file->due = false;
        defer_older(f, file);
    }
    return file ? file->file.id : 0;
}

int unpollable_take(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file = &f->slot[id & NVIDIA_SLOT_MASK];
    int held_fd;
    WITH_TABLE(f);

    if (!file->due || !file->unlocated || file->fetched)
        return -1;
    held_fd = file->held_fd;
    file->held_fd = -1;
    file->places = 0;
    file->unlocated = file->due = false;
    file->closing = true;
    return held_fd;
}

static bool take_out(struct nvidia_files *f, uint32_t slot)
{
    assert_held(&f->lock);
    for (uint32_t i = 0; i < f->unpollables; i++)
        if (f->unpollable[i] == slot) {
            f->unpollable[i] = f->unpollable[--f->unpollables];
            return true;
        }
    return false;
}

/* Its tenant may have exited meanwhile, and the file with it. The slot is not free before the watch has
 * reported the file. */
void unpollable_released(struct nvidia_files *f, uint64_t id, bool closed)
{
    uint32_t slot = id & NVIDIA_SLOT_MASK;
    WITH_TABLE(f);

    f->slot[slot].closing = false;
    if (closed && take_out(f, slot))
        nvidia_files_retire(f, slot);
}

static bool is_unlocated_uvm(const struct nvidia_file *file)
{
    return file->held_fd < 0 && file->file.kind == NODE_UVM;
}

static bool any_unlocated(const struct nvidia_files *f)
{
    for (uint32_t i = 0; i < f->unpollables; i++)
        if (is_unlocated_uvm(&f->slot[f->unpollable[i]]))
            return true;
    return false;
}

/* t: its files; NULL: those of nvidia-uvm of all tenants. */
static void retire_unlocated(struct nvidia_files *f, const struct tenant *t)
{
    for (uint32_t i = f->unpollables; i--;) {
        uint32_t slot = f->unpollable[i];
        const struct nvidia_file *file = &f->slot[slot];

        if ((t ? file->held_fd < 0 && file->file.tenant == t : is_unlocated_uvm(file)) && take_out(f, slot))
            nvidia_files_retire(f, slot);
    }
}

void unpollable_tenant_exited(struct nvidia_files *f, const struct tenant *t)
{
    WITH_TABLE(f);

    retire_unlocated(f, t);
}

/* Every open file of nvidia-uvm is one with a descriptor of ours. None of these is an unlocated one under
 * another name: that one is initialised, and no initialised file is taken as new (nvidia_identify_fetched()).
 */
static bool all_located(const struct nvidia_files *f, const struct nvidia_host *host)
{
    uint32_t pinned = 0;

    for (uint32_t i = 0; i < f->unpollables; i++) {
        const struct nvidia_file *file = &f->slot[f->unpollable[i]];

        pinned += file->file.kind == NODE_UVM && file->held_fd >= 0;
    }
    return nvidia_uvm_open_files(host) == pinned;
}

void unpollable_retire_unlocated(struct nvidia_files *f, const struct nvidia_host *host)
{
    WITH_TABLE(f);

    if (any_unlocated(f) && all_located(f, host))
        retire_unlocated(f, NULL);
}
