/* Processes one after the other, each of which takes all that it sees free on the first card and ends. Usage:
 * in_turn PROCESSES. Prints what each had, in bytes, a line each: where the driver wants some of it for
 * itself, in steps of 16 MiB less. */
#include "cuda_driver.h"
#include <sys/wait.h>
#include <unistd.h>

enum { STEP_BYTES = 16 << 20 };

static void take_all(void)
{
    size_t free_bytes, total_bytes;
    CUdeviceptr p;

    cuda_load();
    cuda_context();
    cuda_must(cuda.mem_info(&free_bytes, &total_bytes), "cuMemGetInfo");
    while (cuda.mem_alloc(&p, free_bytes) != CUDA_SUCCESS && free_bytes > STEP_BYTES)
        free_bytes -= STEP_BYTES;
    printf("%zu\n", free_bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int status = 0;

    for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0 && !status; i--) {
        pid_t child = fork();

        if (child == 0) {
            take_all();
            _exit(0); /* with all of it */
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
    }
    return status ? 1 : 0;
}
