#define _GNU_SOURCE
#include "stat.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>

int nvidia_stat(int dir, const char *name, struct stat *out)
{
    struct statx sx;

    if (statx(dir, name, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &sx) < 0)
        return -errno;
    *out = (struct stat){
        .st_mode = sx.stx_mode,
        .st_rdev = makedev(sx.stx_rdev_major, sx.stx_rdev_minor),
        .st_dev = makedev(sx.stx_dev_major, sx.stx_dev_minor),
        .st_ino = sx.stx_ino,
    };
    return 0;
}
