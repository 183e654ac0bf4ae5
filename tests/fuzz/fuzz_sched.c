/* Whole lives of a few cards by tests/native/sched_sim, which checks after every step what must always
 * hold. */
#include "../native/sched_sim/sim.h"
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint64_t events;
    char error[256];

    if (sim_scenario(data, bytes < 256 ? (uint32_t)bytes : 256, &events, error) == 0)
        return 0;
    fprintf(stderr, "broken: %s\n", error);
    abort();
}
