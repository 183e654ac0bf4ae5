/* Random allocations and frees from several processes of one container, in rounds.
 *
 * Usage: churn PROCESSES ROUNDS STEPS MAX_MIB SEED Each process makes a context on card 0 and, in every
 * round, STEPS random allocations of up to MAX_MIB or frees. Between rounds all stand still: the parent
 * prints "round R allocations A refused F", waits for a line on stdin, and all go on. After the last round
 * everything is freed and each context destroyed, and "end" is printed. */
#include "cuda_driver.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELD_MAX = 256 };

struct shared {
    pthread_barrier_t ready, stop, go; /* ready: every context is made, before memory gets tight */
    uint64_t allocations, refused;
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void churn(struct shared *s, int rounds, int steps, uint64_t max_bytes, uint64_t seed)
{
    CUdeviceptr held[HELD_MAX];
    size_t n = 0, free_bytes, total_bytes;
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    void *ctx;
    int result;

    ctx = cuda_context();
    pthread_barrier_wait(&s->ready);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < steps; i++) {
            if (n < HELD_MAX && (n == 0 || next_random(&state) % 5 < 3)) {
                result = cuda.mem_alloc(&held[n], next_random(&state) % max_bytes + 1);
                if (result == CUDA_SUCCESS)
                    n++;
                else if (result != CUDA_ERROR_OUT_OF_MEMORY)
                    cuda_must(result, "cuMemAlloc");
                __atomic_add_fetch(result ? &s->refused : &s->allocations, 1, __ATOMIC_RELAXED);
            } else {
                size_t k = next_random(&state) % n;

                cuda_must(cuda.mem_free(held[k]), "cuMemFree");
                held[k] = held[--n];
            }
            if (i % 64 == 0) {
                cuda_must(cuda.mem_info(&free_bytes, &total_bytes), "cuMemGetInfo");
                if (free_bytes > total_bytes)
                    cuda_must(-1, "more free than there is");
            }
        }
        pthread_barrier_wait(&s->stop);
        pthread_barrier_wait(&s->go);
    }
    while (n)
        cuda_must(cuda.mem_free(held[--n]), "cuMemFree");
    cuda_must(cuda.ctx_destroy(ctx), "cuCtxDestroy");
    pthread_barrier_wait(&s->stop);
    pthread_barrier_wait(&s->go);
}

int main(int argc, char **argv)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    int processes, rounds, steps, status, failed = 0;
    char line[16];

    if (argc != 6 || s == MAP_FAILED)
        return 2;
    processes = atoi(argv[1]);
    rounds = atoi(argv[2]);
    steps = atoi(argv[3]);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->ready, &attr, (unsigned int)processes);
    pthread_barrier_init(&s->stop, &attr, (unsigned int)processes + 1);
    pthread_barrier_init(&s->go, &attr, (unsigned int)processes + 1);
    cuda_load();
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            churn(s, rounds, steps, strtoull(argv[4], NULL, 10) << 20,
                  strtoull(argv[5], NULL, 10) * 1000 + (uint64_t)i);
            _exit(0);
        }
    for (int r = 0; r <= rounds; r++) {
        pthread_barrier_wait(&s->stop);
        if (r < rounds)
            printf("round %d allocations %llu refused %llu\n", r, (unsigned long long)s->allocations,
                   (unsigned long long)s->refused);
        else
            printf("end\n");
        fflush(stdout);
        if (!fgets(line, sizeof(line), stdin))
            return 1;
        pthread_barrier_wait(&s->go);
    }
    while (wait(&status) > 0)
        failed |= status;
    return failed ? 1 : 0;
}
