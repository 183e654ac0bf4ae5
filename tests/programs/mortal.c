/* Keeps PROCESSES children alive that allocate and free without end, each with files of its own, whoever
 * kills them. Usage: mortal PROCESSES. Prints "up" and goes on until it is killed itself. */
#include "cuda_driver.h"
#include <sys/wait.h>
#include <unistd.h>

static void churn(uint64_t seed)
{
    CUdeviceptr held[8] = {0};

    cuda_context();
    for (uint64_t i = seed;; i = i * 6364136223846793005u + 1442695040888963407u) {
        CUdeviceptr *p = &held[i >> 61];

        if (*p)
            cuda_must(cuda.mem_free(*p), "cuMemFree");
        *p = 0;
        if (cuda.mem_alloc(p, (i >> 40) % (8 << 20) + 1) != CUDA_SUCCESS)
            *p = 0;
    }
}

int main(int argc, char **argv)
{
    int processes = argc > 1 ? atoi(argv[1]) : 1;

    cuda_load();
    printf("up\n");
    fflush(stdout);
    for (uint64_t seed = 1;; seed++) {
        if (processes-- <= 0)
            wait(NULL);
        if (fork() == 0)
            churn(seed);
    }
}
