/* Maps files that threads share, at offsets beyond their first page, all the time, as databases and compilers
 * do; ends with what is wrong at the first that fails. Usage: mappings THREADS. Prints as steady.c does. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64 << 10, FILE_BYTES = 16 << 20 };

static atomic_uint_least64_t calls, longest_us;
static int file;

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static volatile uint32_t *map(off_t at)
{
    uint64_t since_us = now_us(), took_us, longest = atomic_load(&longest_us);
    void *found = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);

    if (found == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    took_us = now_us() - since_us;
    while (took_us > longest && !atomic_compare_exchange_weak(&longest_us, &longest, took_us))
        ;
    atomic_fetch_add(&calls, 1);
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
    char line[16];

    file = memfd_create("shared", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, FILE_BYTES) < 0)
        return 1;
    for (int i = 0; i < threads; i++)
        pthread_create(&thread, NULL, work, (void *)(uintptr_t)((i + 1) * BYTES));
    printf("up\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        printf("calls %llu longest_us %llu\n", (unsigned long long)atomic_exchange(&calls, 0),
               (unsigned long long)atomic_exchange(&longest_us, 0));
        fflush(stdout);
    }
    return 0;
}
