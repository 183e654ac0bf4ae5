#ifndef MGPU_WRITE_WHOLE_H
#define MGPU_WRITE_WHOLE_H
#include <errno.h>
#include <unistd.h>

/* 0: all of it is written. A negative errno: some of it may be. */
static inline int write_whole(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        bytes -= (size_t)n;
    }
    return 0;
}
#endif
