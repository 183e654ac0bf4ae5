/* What a poll takes that reads one status word of a card, and one that reads all. Usage: poll_words
 * ARCHITECTURE IMPLEMENTATION CHANNELS ROUNDS. Prints both in ns, a line for each of some rounds of so many
 * polls. */
#define _GNU_SOURCE
#include "../../base/clock.h"
#include "../../native_sched/nvidia/driver/chips.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ONLINE = 1, TIMES = 21, BAR_BYTES = 64 << 10 };

void poll_begin(uint64_t quiet_ns, uint64_t hold_ns);
int poll_tenant(uint32_t id, int online, uint32_t cards);
void poll_channels(uint32_t id, uint32_t more);
int poll_registers(uint32_t index, const struct chip *chip, const void *bar, size_t bytes);
void poll_at(uint64_t now);

static double poll_ns(const struct chip *chip, uint32_t words, uint32_t channels, int rounds)
{
    struct chip some = *chip;
    void *bar = mmap(NULL, BAR_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int64_t began_ns;

    some.words = words;
    poll_begin(5000000, 100000000);
    if (bar == MAP_FAILED || poll_tenant(ONLINE, 1, 1) || poll_registers(0, &some, bar, BAR_BYTES))
        exit(1);
    poll_channels(ONLINE, channels - 1);
    began_ns = (int64_t)monotonic_ns();
    for (int i = 0; i < rounds; i++)
        poll_at((uint64_t)i * 500000);
    return (double)((int64_t)monotonic_ns() - began_ns) / rounds;
}

int main(int argc, char **argv)
{
    const struct chip *chip = argc == 5 ? chip_find((uint32_t)strtoul(argv[1], NULL, 0),
                                                    (uint32_t)strtoul(argv[2], NULL, 0))
                                        : NULL;

    if (!chip)
        return 2;
    for (int i = 0; i < TIMES; i++) {
        uint32_t channels = (uint32_t)atoi(argv[3]);
        double one_ns = poll_ns(chip, 1, channels, atoi(argv[4]));

        printf("%.1f %.1f\n", one_ns, poll_ns(chip, chip->words, channels, atoi(argv[4])));
    }
    return 0;
}
