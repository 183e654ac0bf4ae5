/* stress FIRST COUNT: so many random lives by number; ends with 1 and a line when something did not hold. */
#include "sim.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000, all = 0;
    int failures = 0;

    for (uint64_t i = first; i < first + count && failures < 5; i++) {
        uint8_t bytes[64];
        uint64_t seed = i;
        uint64_t events = 0;
        char error[256];

        for (size_t b = 0; b < sizeof(bytes); b++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[b] = (uint8_t)(seed >> 56);
        }
        if (sim_scenario(bytes, sizeof(bytes), &events, error) < 0) {
            printf("life %" PRIu64 ": %s\n", i, error);
            failures++;
        }
        all += events;
    }
    printf("%" PRIu64 " lives, %" PRIu64 " events\n", count, all);
    return failures > 0;
}
