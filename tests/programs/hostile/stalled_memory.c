/* Parameters in a page that is never provided: a reader waits, for as long as the tenant likes, unless
 * the kernel lets no other process wait for it. Usage: stalled_memory. Prints "answered ERRNO" or "waits"
 * after half a second, and stands still. */
#define _GNU_SOURCE
#include "../rm.h"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static uint32_t client;
static int fd;
static void *page;
static volatile int64_t result = 1;

static int missing_pages(void *at, size_t bytes)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register reg = {.range = {(uintptr_t)at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

    if (uffd < 0)
        uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &reg))
        return -1;
    return uffd;
}

static void *call(void *arg)
{
    result = rm_alloc(fd, client, DEVICE, FIRST_MEMORY, NV01_MEMORY_LOCAL_USER, page,
                      sizeof(struct rm_memory));
    return arg;
}

int main(void)
{
    pthread_t thread;

    fd = open_client(&client);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(page != MAP_FAILED && missing_pages(page, 4096) >= 0, "userfaultfd");
    must(!pthread_create(&thread, NULL, call, NULL), "thread");
    usleep(500000);
    if (result == 1)
        say("waits");
    else
        say("answered %lld", (long long)-result);
    hold();
}
