#include "spec_file.h"

#include "base/scoped.h"
#include "base/write_whole.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEPT_NAME  ".mgpu-config.json"
#define NEW_SUFFIX ".new"
enum { NAME_BYTES = PATH_MAX + 32 };

static void name_beside(const struct spec_file *file, const char *suffix, char name[NAME_BYTES])
{
    const char *slash = strrchr(file->path, '/');
    size_t folder_bytes = slash ? (size_t)(slash - file->path) : 0;

    memcpy(name, file->path, folder_bytes);
    snprintf(name + folder_bytes, NAME_BYTES - folder_bytes, "/" KEPT_NAME "%s", suffix);
}

static size_t read_whole(const char *path, struct stat *status, char *text, size_t capacity)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t bytes = 0;

    if (fd < 0 || fstat(fd, status) < 0 || !S_ISREG(status->st_mode))
        return 0;
    while (bytes < capacity) {
        ssize_t n = read(fd, text + bytes, capacity - bytes);

        if (n < 0)
            return 0;
        if (n == 0)
            return bytes;
        bytes += (size_t)n;
    }
    return 0;
}

size_t spec_file_read(struct spec_file *file, char *text, size_t capacity)
{
    return read_whole(file->path, &file->status, text, capacity);
}

size_t spec_file_read_kept(struct spec_file *file, char *text, size_t capacity)
{
    char kept[NAME_BYTES];
    struct stat status;

    file->rewritten = true;
    name_beside(file, "", kept);
    return read_whole(kept, &status, text, capacity);
}

/* A whole new file with the owner and mode of another. */
static bool make(const char *path, const struct stat *like, struct slice text)
{
    scoped_fd int fd = -1;

    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    if ((like->st_uid != geteuid() || like->st_gid != getegid()) &&
        fchown(fd, like->st_uid, like->st_gid) < 0)
        return false;
    return fchmod(fd, like->st_mode & 07777) == 0 && write_whole(fd, text.text, text.bytes) == 0;
}

bool spec_file_replace(const struct spec_file *file, struct slice original, struct slice text)
{
    char kept[NAME_BYTES], fresh[NAME_BYTES];

    name_beside(file, "", kept);
    name_beside(file, NEW_SUFFIX, fresh);
    if ((file->rewritten || make(kept, &file->status, original)) && make(fresh, &file->status, text) &&
        rename(fresh, file->path) == 0)
        return true;
    unlink(fresh);
    if (!file->rewritten)
        unlink(kept);
    return false;
}

void spec_file_restore(const struct spec_file *file)
{
    char kept[NAME_BYTES];

    name_beside(file, "", kept);
    rename(kept, file->path);
}
