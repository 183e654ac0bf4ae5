#include "spec_file.h"

#include "native_sched/base/scoped.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEPT_NAME ".mgpu-config.json"
#define NEW_SUFFIX ".new"
enum { NAME_BYTES = PATH_MAX + 32 };

bool spec_file_read(struct spec_file *file, char *text, size_t capacity)
{
    scoped_fd int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &file->status) < 0 || !S_ISREG(file->status.st_mode))
        return false;
    for (file->bytes = 0; file->bytes < capacity;) {
        ssize_t n = read(fd, text + file->bytes, capacity - file->bytes);

        if (n < 0)
            return false;
        if (n == 0)
            return file->bytes > 0;
        file->bytes += (size_t)n;
    }
    return false;
}

static void name_beside(const struct spec_file *file, const char *suffix, char name[NAME_BYTES])
{
    const char *slash = strrchr(file->path, '/');

    snprintf(name, NAME_BYTES, "%.*s/" KEPT_NAME "%s", slash ? (int)(slash - file->path) : 0, file->path, suffix);
}

static bool write_whole(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n <= 0)
            return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* A whole new file with the owner and mode of another. */
static bool make(const char *path, const struct stat *like, const char *text, size_t bytes)
{
    scoped_fd int fd = -1;

    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    if ((like->st_uid != geteuid() || like->st_gid != getegid()) && fchown(fd, like->st_uid, like->st_gid) < 0)
        return false;
    return fchmod(fd, like->st_mode & 07777) == 0 && write_whole(fd, text, bytes);
}

bool spec_file_replace(const struct spec_file *file, const char *original, const char *text, size_t bytes)
{
    char kept[NAME_BYTES], fresh[NAME_BYTES];

    name_beside(file, "", kept);
    name_beside(file, NEW_SUFFIX, fresh);
    if (make(kept, &file->status, original, file->bytes) && make(fresh, &file->status, text, bytes) &&
        rename(fresh, file->path) == 0)
        return true;
    unlink(fresh);
    unlink(kept);
    return false;
}

void spec_file_restore(const struct spec_file *file)
{
    char kept[NAME_BYTES];

    name_beside(file, "", kept);
    rename(kept, file->path);
}
