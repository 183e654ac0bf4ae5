/* Cleanup tied to scope. */
#ifndef MGPU_SCOPED_H
#define MGPU_SCOPED_H
#include <unistd.h>

static inline void scoped_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#define scoped_fd __attribute__((cleanup(scoped_close)))
#endif
