/* How long cuInit and the making of a context take, in a process each time. Usage: cuda_start N
 * Prints {"p50_us": ...}. */
#include "cuda_driver.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void start(double *took)
{
    double begin = now_us();
    void *context;
    int device;

    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_get(&device, 0), "cuDeviceGet");
    cuda_must(cuda.ctx_create(&context, 0, device), "cuCtxCreate");
    *took = now_us() - begin;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 15, status;
    double *took = mmap(NULL, (size_t)n * sizeof(*took), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);

    cuda_load();
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            start(&took[i]);
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status)
            return 1;
    }
    qsort(took, (size_t)n, sizeof(*took), compare);
    printf("{\"p50_us\": %.1f}\n", took[n / 2]);
    return 0;
}
