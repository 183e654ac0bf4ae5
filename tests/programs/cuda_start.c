/* How long cuInit, the making of a context and the end take, in a process each time. Usage: cuda_start N
 * [PAUSE_MS], between two of them. Prints {"p50_us": ...} of cuInit and context together, the first and the
 * longest of these, and each part by itself. */
#include "../../base/clock.h"
#include "cuda_driver.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum part { BEGIN, INIT, CONTEXT, END, PARTS };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void start(double *at)
{
    void *context;
    int device;

    at[BEGIN] = (double)monotonic_ns() / 1e3;
    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_get(&device, 0), "cuDeviceGet");
    at[INIT] = (double)monotonic_ns() / 1e3;
    cuda_must(cuda.ctx_create(&context, 0, device), "cuCtxCreate");
    at[CONTEXT] = (double)monotonic_ns() / 1e3;
}

/* The times from one moment of each process to another, in order. */
static double *between(double (*at)[PARTS], int n, enum part from, enum part to)
{
    static double took[1024];

    for (int i = 0; i < n; i++)
        took[i] = at[i][to] - at[i][from];
    qsort(took, (size_t)n, sizeof(*took), compare);
    return took;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 15, pause_ms = argc > 2 ? atoi(argv[2]) : 0, status;
    double(*at)[PARTS] = mmap(NULL, (size_t)n * sizeof(*at), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (n < 1 || n > 1024 || at == MAP_FAILED)
        return 2;
    cuda_load();
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            start(at[i]);
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status)
            return 1;
        at[i][END] = (double)monotonic_ns() / 1e3;
        usleep((useconds_t)pause_ms * 1000);
    }
    printf("{\"p50_us\": %.1f, ", between(at, n, BEGIN, CONTEXT)[n / 2]);
    printf("\"max_us\": %.1f, ", between(at, n, BEGIN, CONTEXT)[n - 1]);
    printf("\"first_us\": %.1f, ", at[0][CONTEXT] - at[0][BEGIN]);
    printf("\"init_p50_us\": %.1f, ", between(at, n, BEGIN, INIT)[n / 2]);
    printf("\"context_p50_us\": %.1f, ", between(at, n, INIT, CONTEXT)[n / 2]);
    printf("\"end_p50_us\": %.1f}\n", between(at, n, CONTEXT, END)[n / 2]);
    return 0;
}
