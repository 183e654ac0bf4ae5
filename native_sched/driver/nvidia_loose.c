#define _GNU_SOURCE
#include "nvidia_loose.h"
#include <linux/kcmp.h>
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

bool loose_file_at_a_place(const struct nvidia_file *file)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (same_file(file->place[i].tid, file->place[i].fd, file->pin) ||
            same_file(file->place[i].tgid, file->place[i].fd, file->pin))
            return true;
    return false;
}

bool nvidia_files_mark_loose(struct nvidia_files *f)
{
    bool any = false;
    WITH_TABLE(f);

    for (uint32_t i = 0; i < f->loosened; i++) {
        struct nvidia_file *file = &f->slot[f->loose[i]];

        file->lost = !loose_file_at_a_place(file);
        any |= file->lost;
    }
    return any;
}

/* It is on no list meanwhile, and its slot not free. */
int nvidia_files_take_loose(struct nvidia_files *f, uint32_t *slot)
{
    WITH_TABLE(f);

    for (uint32_t i = 0; i < f->loosened; i++) {
        struct nvidia_file *file = &f->slot[f->loose[i]];
        int pin = file->pin;

        if (!file->lost)
            continue;
        *slot = f->loose[i];
        f->loose[i] = f->loose[--f->loosened];
        file->pin = -1;
        return pin;
    }
    return -1;
}
