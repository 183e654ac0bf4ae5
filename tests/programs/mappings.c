/* Maps files that threads share, at offsets beyond their first page, all the time, as databases and compilers
 * do; ends with what is wrong at the first that fails. Usage: mappings THREADS. Prints as steady.c does. */
#define _GNU_SOURCE
#include "longest.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 64 << 10, FILE_BYTES = 16 << 20 };

static int file;

static volatile uint32_t *map(off_t at)
{
    uint64_t since_us = monotonic_ns() / 1000;
    void *found = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);

    if (found == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    called(since_us);
    return found;
}

static void *work(void *arg)
{
    off_t at = (off_t)(uintptr_t)arg;

    for (uint32_t i = 0;; i++) {
        volatile uint32_t *one = map(at), *other = map(at);

        one[i % (BYTES / 4)] = i;
        if (other[i % (BYTES / 4)] != i) {
            fprintf(stderr, "another page\n");
            exit(1);
        }
        munmap((void *)(uintptr_t)one, BYTES);
        munmap((void *)(uintptr_t)other, BYTES);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t thread;

    file = memfd_create("shared", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, FILE_BYTES) < 0)
        return 1;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, NULL, work, (void *)(uintptr_t)((i + 1) * BYTES));
    report();
    return 0;
}
