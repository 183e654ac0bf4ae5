/* Preloaded, it moves a program's wall clock, by as many seconds as the file that MGPU_TEST_CLOCK names holds
 * (a double). The machine's own stays. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *moved_s;

__attribute__((constructor)) static void find(void)
{
    const char *name = getenv("MGPU_TEST_CLOCK");
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*moved_s), PROT_READ, MAP_SHARED, fd, 0);

    moved_s = map == MAP_FAILED ? NULL : map;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    int result = (int)syscall(SYS_clock_gettime, id, t);

    if (result == 0 && moved_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        t->tv_sec += (time_t)*moved_s;
    return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}
