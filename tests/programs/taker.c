/* Takes memory and gives it back. Usage: taker MIB. Prints "up", and for each line on stdin "took RESULT US",
 * the CUDA error and the microseconds of the call, or "gave 0 US" for what it has. */
#include "../../base/clock.h"
#include "cuda_driver.h"

int main(int argc, char **argv)
{
    CUdeviceptr memory = 0;
    int result;
    char line[64];

    if (argc < 2)
        return 2;
    cuda_load();
    cuda_context();
    dprintf(1, "up\n");
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t since_us = monotonic_ns() / 1000;
        const char *what = memory ? "gave" : "took";

        if (memory) {
            result = cuda.mem_free(memory);
            memory = 0;
        } else {
            result = cuda.mem_alloc(&memory, strtoull(argv[1], NULL, 10) << 20);
        }
        dprintf(1, "%s %d %llu\n", what, result, (unsigned long long)(monotonic_ns() / 1000 - since_us));
    }
    return 0;
}
