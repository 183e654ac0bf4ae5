#include "host_memory.h"
#include "base/scoped.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
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

/* Free memory alone is plenty: asked in 1 us, where MemAvailable takes the kernel 12. */
static bool is_plenty(uint64_t bytes)
{
    struct sysinfo node;

    return sysinfo(&node) == 0 && node.freeram >= node.totalram / 8 &&
           bytes <= (uint64_t)node.freeram * node.mem_unit / 2;
}

bool host_memory_lacks(uint64_t bytes)
{
    return !is_plenty(bytes) && bytes > available_bytes();
}
