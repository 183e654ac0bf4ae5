/* Whether a file is closed or about to be. The watch reports it when that is certain (watch.c). */
#define _GNU_SOURCE
#include "base/clock.h"
#include "native_sched/nvidia/driver/nvidia/files/unpollable.h"
#include "private.h"
#include <unistd.h>

enum { COMPARED_AT_ONCE = 8 };

/* A free slot, or another file's: the watch has reported this one just now. */
static bool is_closing(const struct nvidia_file *at, const struct open_file *file)
{
    if (at->file.id != file->id || at->closed)
        return true;
    if (at->weak.epoll >= 0)
        return !weak_ref_lives(&at->weak);
    return at->closing || (at->held_fd >= 0 && !unpollable_place(at));
}

static bool any_of(struct nvidia_files *f, const struct open_file *file, uint32_t files)
{
    WITH_TABLE(f);

    for (uint32_t i = 0; i < files; i++)
        if (is_closing(&f->slot[file[i].id & NVIDIA_SLOT_MASK], &file[i]))
            return true;
    return false;
}

static void await(struct driver *d)
{
    uint64_t one = 1, now = monotonic_ns();

    if (now - atomic_exchange(&d->awaited_at_ns, now) > AWAITED_MS * NS_PER_MS)
        (void)!write(d->wake, &one, sizeof(one)); /* it looks every now and then in any case */
}

bool nvidia_any_closing(struct driver *d, const struct open_file *file, uint32_t files)
{
    for (uint32_t i = 0; i < files; i += COMPARED_AT_ONCE) {
        uint32_t n = files - i < COMPARED_AT_ONCE ? files - i : COMPARED_AT_ONCE;

        if (any_of(&d->files, file + i, n)) {
            await(d);
            return true;
        }
    }
    return false;
}
