/* Everything the holder knows, in a memfd, for the program that replaces it. Descriptors stay
 * open across execve and are written as their numbers, times are CLOCK_MONOTONIC's. */
#ifndef MGPU_HOLDER_SAVED_H
#define MGPU_HOLDER_SAVED_H
#include <stdbool.h>

/* A number for each layout that these bytes have ever had, and for each set of options. Of those from the
 * first on all can be read: in 2 the bytes of `stored` are 0. */
enum { SAVED_FORMAT = 3, SAVED_FORMAT_FIRST = 2 };

struct own {
    int runtimes_fd, mgpuds_fd;
    bool told_ready;
};

static inline bool saved_is_known(long format)
{
    return format >= SAVED_FORMAT_FIRST && format <= SAVED_FORMAT;
}

/* A memfd, or a negative errno. */
int saved_write(const struct own *own);
/* Into an empty holder. -EPROTONOSUPPORT: another format; -EBADMSG: damaged. Closes no descriptor. */
int saved_read(int memfd, struct own *own);
/* Whether the descriptors stay open across execve. */
void saved_keep_open(const struct own *own, bool open);
#endif
