/* Managed memory beyond the cap. Usage: managed over      ranges of 64 MiB, as libcuda maps them, until one
 * is refused; prints "BYTES ERRNO" managed swap SECONDS     one of 1 TiB, while another thread puts
 * nvidia-uvm in the place of another file; prints "none N" after N calls, or "kept" if it is there and the
 * next call is answered It stands still with what it has. */
#define _GNU_SOURCE
#include "../rm.h"
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { FD = 50 };
static const uint64_t range_bytes = 64ull << 20, huge_bytes = 1ull << 40, begin = 1ull << 44;
static int uvm, ordinary;
static volatile bool stopped;

/* A managed range is at the address that is its offset in the file. */
static int map(int fd, uint64_t at, uint64_t bytes)
{
    void *found = mmap((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                       fd, (off_t)at);

    return found == MAP_FAILED ? errno : 0;
}

static void *swap(void *arg)
{
    while (!stopped) {
        dup2(uvm, FD);
        dup2(ordinary, FD);
    }
    return arg;
}

static bool is_uvms(void)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");

    while (maps && fgets(line, sizeof(line), maps))
        found |= strtoull(line, NULL, 16) == begin && strstr(line, "nvidia-uvm");
    if (maps)
        fclose(maps);
    return found;
}

static void over(void)
{
    uint64_t n = 0;
    int e;

    while (!(e = map(uvm, begin + n * range_bytes, range_bytes)))
        n++;
    say("%llu %d", (unsigned long long)(n * range_bytes), e);
}

static void race(time_t end)
{
    struct uvm_pageable any = {0};
    unsigned int n = 0;
    pthread_t thread;

    dup2(ordinary, FD);
    must(!pthread_create(&thread, NULL, swap, NULL), "thread");
    for (; time(NULL) < end; n++) {
        if (map(FD, begin, huge_bytes))
            continue;
        if (is_uvms()) {
            ioctl(uvm, UVM_PAGEABLE_MEM_ACCESS, &any);
            say(ioctl(uvm, UVM_PAGEABLE_MEM_ACCESS, &any) ? "refused" : "kept");
            hold();
        }
        munmap((void *)(uintptr_t)begin, huge_bytes);
    }
    stopped = true;
    say("none %u", n);
}

int main(int argc, char **argv)
{
    struct uvm_initialize uvm_initialize = {.flags = 0};

    uvm = open_node("/dev/nvidia-uvm");
    ordinary = memfd_create("ordinary", 0);
    must(ordinary >= 0 && !ftruncate(ordinary, 1 << 20), "a file");
    ioctl(uvm, UVM_INITIALIZE, &uvm_initialize);
    if (argc > 2 && !strcmp(argv[1], "swap"))
        race(time(NULL) + atoi(argv[2]));
    else
        over();
    hold();
}
