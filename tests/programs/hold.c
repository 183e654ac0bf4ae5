/* Holds memory until it is killed. Usage: hold MIB [PROCESSES [SECONDS]] Each process allocates MIB on card 0
 * and prints "held RESULT" (a CUDA error number), then sleeps: for ever, or for so many seconds. */
#include "cuda_driver.h"
#include <sys/wait.h>
#include <unistd.h>

static void hold(size_t mib, const char *seconds)
{
    CUdeviceptr p;
    void *ctx;
    int device, result;

    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_get(&device, 0), "cuDeviceGet");
    result = cuda.ctx_create(&ctx, 0, device);
    if (result == CUDA_SUCCESS)
        result = cuda.mem_alloc(&p, mib << 20);
    dprintf(1, "held %d\n", result);
    if (seconds)
        exit((int)sleep((unsigned int)atoi(seconds)));
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int processes = argc > 2 ? atoi(argv[2]) : 1;
    const char *seconds = argc > 3 ? argv[3] : NULL;

    if (argc < 2)
        return 2;
    cuda_load();
    for (int i = 1; i < processes; i++)
        if (fork() == 0)
            hold(strtoull(argv[1], NULL, 10), seconds);
    hold(strtoull(argv[1], NULL, 10), seconds);
}
