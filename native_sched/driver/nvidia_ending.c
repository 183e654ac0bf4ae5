/* Whether a file has been closed. When that is certain the watch tells (nvidia_watch.c). */
#define _GNU_SOURCE
#include "nvidia_loose.h"
#include "nvidia_private.h"

enum { LOOKS_AT_ONCE = 8 };

/* A free slot, or another file's: the watch has told of it just now. */
static bool is_ending(const struct nvidia_file *at, const struct open_file *file)
{
    if (at->file.id != file->id || at->gone_at_ns)
        return true;
    if (at->weak.epoll >= 0)
        return !weak_file_lives(&at->weak);
    return at->closing || (at->pin >= 0 && !loose_file_place(at));
}

static bool any_of(struct nvidia_files *f, const struct open_file *file, uint32_t files)
{
    WITH_TABLE(f);

    for (uint32_t i = 0; i < files; i++)
        if (is_ending(&f->slot[file[i].id & NVIDIA_SLOT_MASK], &file[i]))
            return true;
    return false;
}

bool nvidia_any_ended(struct driver *d, const struct open_file *file, uint32_t files)
{
    for (uint32_t i = 0; i < files; i += LOOKS_AT_ONCE) {
        uint32_t n = files - i < LOOKS_AT_ONCE ? files - i : LOOKS_AT_ONCE;

        if (any_of(&d->files, file + i, n))
            return true;
    }
    return false;
}
