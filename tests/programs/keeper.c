/* Keeps data in the card's memory, works on it all the time, and ends with a line at the first byte that is
 * not as it was written. Usage: keeper MIB [PROCESSES]. Each process fills MIB of card 0; the first prints
 * "up", and "rounds N" for each line on stdin, once all of its memory was right after that line. */
#include "cuda_driver.h"
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { COUNTERS = 4, WORD_STEP = 2654435761u };

static struct {
    int (*to_device)(CUdeviceptr to, const void *from, size_t bytes);
    int (*to_host)(void *to, CUdeviceptr from, size_t bytes);
} copy;

static void broken(const char *what, unsigned long long at)
{
    printf("broken: %s at %llu\n", what, at);
    fflush(stdout);
    _exit(4);
}

static void fill(uint32_t *words, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        words[i] = seed + (uint32_t)i * WORD_STEP;
}

static void check(const uint32_t *words, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        if (words[i] != seed + (uint32_t)i * WORD_STEP)
            broken("data", i);
}

/* A counter in the card's memory, which each round takes further. */
static void count(CUdeviceptr at, uint64_t rounds)
{
    uint64_t counter[COUNTERS];

    cuda_must(copy.to_host(counter, at, sizeof(counter)), "cuMemcpyDtoH");
    for (int i = 0; i < COUNTERS; i++)
        if (counter[i]++ != rounds)
            broken("counter", rounds);
    cuda_must(copy.to_device(at, counter, sizeof(counter)), "cuMemcpyHtoD");
}

static void keep(size_t bytes, uint32_t seed, bool speaks)
{
    struct pollfd in = {.fd = speaks ? 0 : -1, .events = POLLIN};
    uint64_t zero[COUNTERS] = {0}, rounds = 0;
    uint32_t *words = malloc(bytes);
    CUdeviceptr memory, counter;
    int ready;
    char line[64];

    if (!words)
        exit(3);
    cuda_context();
    cuda_must(cuda.mem_alloc(&memory, bytes), "cuMemAlloc");
    cuda_must(cuda.mem_alloc(&counter, sizeof(zero)), "cuMemAlloc");
    fill(words, bytes / sizeof(*words), seed);
    cuda_must(copy.to_device(memory, words, bytes), "cuMemcpyHtoD");
    cuda_must(copy.to_device(counter, zero, sizeof(zero)), "cuMemcpyHtoD");
    if (speaks)
        dprintf(1, "up\n");
    for (;; rounds++) {
        ready = poll(&in, 1, 5);
        if (ready > 0 && read(0, line, sizeof(line)) <= 0)
            exit(0);
        memset(words, 0, bytes);
        cuda_must(copy.to_host(words, memory, bytes), "cuMemcpyDtoH");
        check(words, bytes / sizeof(*words), seed);
        count(counter, rounds);
        if (ready > 0)
            dprintf(1, "rounds %llu\n", (unsigned long long)rounds);
    }
}

int main(int argc, char **argv)
{
    int processes = argc > 2 ? atoi(argv[2]) : 1;
    size_t bytes;
    void *lib;

    if (argc < 2)
        return 2;
    bytes = strtoull(argv[1], NULL, 10) << 20;
    cuda_load();
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&copy.to_device = cuda_symbol(lib, "cuMemcpyHtoD_v2");
    *(void **)&copy.to_host = cuda_symbol(lib, "cuMemcpyDtoH_v2");
    for (int i = 1; i < processes; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            keep(bytes, (uint32_t)i, false);
        }
    keep(bytes, 0, true);
}
