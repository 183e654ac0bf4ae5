#define _GNU_SOURCE
#include "nvidia_loose.h"
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool same_file(pid_t pid, int theirs, int ours)
{
    return syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, (unsigned long)ours, (unsigned long)theirs) == 0;
}

bool loose_file_is(const struct nvidia_file *file, int fd)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (same_file(file->place[i].tid, file->place[i].fd, fd) ||
            same_file(file->place[i].tgid, file->place[i].fd, fd))
            return true;
    return false;
}

uint32_t loose_file_find(const struct nvidia_files *f, const struct tenant *t, int fd)
{
    for (uint32_t i = 0; i < f->loosened; i++)
        if (f->slot[f->loose[i]].file.tenant == t && loose_file_is(&f->slot[f->loose[i]], fd))
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

static bool is_device(pid_t pid, int fd, dev_t rdev)
{
    char path[48];
    struct statx st;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 && S_ISCHR(st.stx_mode) &&
           makedev(st.stx_rdev_major, st.stx_rdev_minor) == rdev;
}

bool loose_file_lives(const struct nvidia_file *file)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (is_device(file->place[i].tid, file->place[i].fd, file->rdev) ||
            is_device(file->place[i].tgid, file->place[i].fd, file->rdev))
            return true;
    return false;
}
