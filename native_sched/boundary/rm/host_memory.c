#include "host_memory.h"
#include "base/scoped.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 0 where it cannot be read: nothing is given then. The line is the third of the file. */
static uint64_t available_bytes(void)
{
    static const char name[] = "MemAvailable:";
    char text[256] = "";
    scoped_fd int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    const char *at = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? strstr(text, name) : NULL;

    return at ? strtoull(at + sizeof(name) - 1, NULL, 10) << 10 : 0;
}

bool host_memory_lacks(uint64_t bytes)
{
    return bytes > available_bytes();
}
