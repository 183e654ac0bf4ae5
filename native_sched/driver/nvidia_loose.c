#define _GNU_SOURCE
#include "nvidia_loose.h"
#include "nvidia_uvm.h"
#include <errno.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool same_file(pid_t pid, int theirs, int ours)
{
    return syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, (unsigned long)ours, (unsigned long)theirs) == 0;
}

bool loose_file_is(const struct nvidia_file *file, int fd)
{
    return file->pin >= 0 && same_file(getpid(), fd, file->pin);
}

uint32_t loose_file_find(const struct nvidia_files *f, int fd)
{
    for (uint32_t i = 0; i < f->loosened; i++)
        if (loose_file_is(&f->slot[f->loose[i]], fd))
            return f->loose[i];
    return 0;
}

uint32_t loose_files_of(const struct nvidia_files *f, const struct tenant *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->loosened; i++)
        n += f->slot[f->loose[i]].file.tenant == t;
    return n;
}

const struct fd_place *loose_file_place(const struct nvidia_file *file)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (same_file(file->place[i].tid, file->place[i].fd, file->pin) ||
            same_file(file->place[i].tgid, file->place[i].fd, file->pin))
            return &file->place[i];
    return NULL;
}

/* The next worker looks for it there. At none: what stands at its place would pass for it. */
static void tell_place(struct nvidia_files *f, const struct nvidia_file *file, const struct fd_place *at)
{
    static const struct fd_place none;

    at = at ? at : &none;
    files_note_seen(f->known, file->file.id, at->tid, at->tgid, at->fd);
}

bool nvidia_file_has_process(const struct nvidia_file *file)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (kill(file->place[i].tgid, 0) == 0 || errno != ESRCH)
            return true;
    return false;
}

bool nvidia_files_mark_loose(struct nvidia_files *f)
{
    bool any = false;
    WITH_TABLE(f);

    for (uint32_t i = 0; i < f->loosened; i++) {
        struct nvidia_file *file = &f->slot[f->loose[i]];
        const struct fd_place *at = file->pin >= 0 ? loose_file_place(file) : NULL;

        file->lost = file->pin >= 0 && !at;
        any |= file->lost;
        if (at && file->looks) {
            file->looks = 0;
            tell_place(f, file, at);
        }
    }
    return any;
}

/* A file that UVM_MM_INITIALIZE was called on holds another one, and the memory of its process with all that is mapped there
 * (uvm_api_mm_initialize() and uvm_release_mm() of NVIDIA's open-gpu-kernel-modules). It is the younger of the two: what is
 * older waits for it. */
static void put_off_older(struct nvidia_files *f, const struct nvidia_file *than)
{
    for (uint32_t i = 0; i < f->loosened; i++) {
        struct nvidia_file *file = &f->slot[f->loose[i]];

        if (file->file.tenant == than->file.tenant && file->file.id < than->file.id)
            file->due = false;
    }
}

void nvidia_files_look_loose(struct nvidia_files *f)
{
    WITH_TABLE(f);

    /* Of a process that has ended by now none is seen at its place below: it closed them all before. */
    for (uint32_t i = 0; i < f->loosened; i++)
        f->slot[f->loose[i]].ended = !nvidia_file_has_process(&f->slot[f->loose[i]]);
    for (uint32_t i = 0; i < f->loosened; i++) {
        struct nvidia_file *file = &f->slot[f->loose[i]];
        bool missed = file->lost;

        file->lost = file->pin >= 0 && !loose_file_place(file);
        if (missed && file->lost && !file->looks++)
            tell_place(f, file, NULL);
        file->due = file->lost && file->looks >= (file->ended ? NVIDIA_ENDED_LOOKS : NVIDIA_LOOSE_LOOKS);
    }
    for (uint32_t i = 0; i < f->loosened; i++)
        if (f->slot[f->loose[i]].lost && !f->slot[f->loose[i]].due)
            put_off_older(f, &f->slot[f->loose[i]]);
}

static struct nvidia_file *youngest_due(struct nvidia_files *f)
{
    struct nvidia_file *found = NULL;

    for (uint32_t i = 0; i < f->loosened; i++) {
        struct nvidia_file *file = &f->slot[f->loose[i]];

        if (file->due && (!found || found->file.id < file->file.id))
            found = file;
    }
    return found;
}

uint64_t nvidia_files_next_loose(struct nvidia_files *f)
{
    struct nvidia_file *file;
    WITH_TABLE(f);

    while ((file = youngest_due(f)) && (file->fetched || !file->lost)) {
        file->due = false;
        put_off_older(f, file);
    }
    return file ? file->file.id : 0;
}

int nvidia_files_take_loose(struct nvidia_files *f, uint64_t id)
{
    struct nvidia_file *file = &f->slot[id & NVIDIA_SLOT_MASK];
    int pin;
    WITH_TABLE(f);

    if (!file->due || !file->lost || file->fetched)
        return -1;
    pin = file->pin;
    file->pin = -1;
    file->places = 0;
    file->lost = file->due = false;
    file->closing = true;
    return pin;
}

static bool take_out(struct nvidia_files *f, uint32_t slot)
{
    for (uint32_t i = 0; i < f->loosened; i++)
        if (f->loose[i] == slot) {
            f->loose[i] = f->loose[--f->loosened];
            return true;
        }
    return false;
}

/* Its tenant may have ended meanwhile, and the file with it. The slot is not free before the watch says so. */
void nvidia_files_let_go(struct nvidia_files *f, uint64_t id, bool closed)
{
    uint32_t slot = id & NVIDIA_SLOT_MASK;
    WITH_TABLE(f);

    f->slot[slot].closing = false;
    if (closed && take_out(f, slot))
        nvidia_files_bury(f, slot);
}

static bool is_unseen_uvm(const struct nvidia_file *file)
{
    return file->pin < 0 && file->file.kind == NODE_UVM;
}

bool loose_files_unseen(const struct nvidia_files *f)
{
    for (uint32_t i = 0; i < f->loosened; i++)
        if (is_unseen_uvm(&f->slot[f->loose[i]]))
            return true;
    return false;
}

/* t: its files; NULL: everybody's of nvidia-uvm. */
static void bury_unseen(struct nvidia_files *f, const struct tenant *t)
{
    for (uint32_t i = f->loosened; i--;) {
        uint32_t slot = f->loose[i];
        const struct nvidia_file *file = &f->slot[slot];

        if ((t ? file->pin < 0 && file->file.tenant == t : is_unseen_uvm(file)) && take_out(f, slot))
            nvidia_files_bury(f, slot);
    }
}

void nvidia_files_tenant_ended(struct nvidia_files *f, const struct tenant *t)
{
    WITH_TABLE(f);

    bury_unseen(f, t);
}

/* Every file of nvidia-uvm that is open is one with a descriptor of ours, and none of these may be one that nobody sees, under
 * another name. */
static bool sees_all(const struct nvidia_files *f, const struct nvidia_host *host)
{
    bool unseen = loose_files_unseen(f);
    uint32_t pinned = 0;

    for (uint32_t i = 0; i < f->loosened; i++) {
        const struct nvidia_file *file = &f->slot[f->loose[i]];

        if (file->file.kind != NODE_UVM || file->pin < 0)
            continue;
        if (unseen && file->file.may_be_unseen)
            return false;
        pinned++;
    }
    return nvidia_uvm_open_files(host) == pinned;
}

bool nvidia_files_see_all(struct nvidia_files *f, const struct nvidia_host *host)
{
    WITH_TABLE(f);

    return sees_all(f, host);
}

void nvidia_files_end_unseen(struct nvidia_files *f, const struct nvidia_host *host)
{
    WITH_TABLE(f);

    if (loose_files_unseen(f) && sees_all(f, host))
        bury_unseen(f, NULL);
}
