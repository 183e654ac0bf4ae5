/* A container that does no harm and is to notice nothing. For every line on its input it makes and
 * frees files, clients and memory, and says how long the slowest call took. Usage: neighbour. Prints "ready",
 * then "well US". */
#include "../../../base/clock.h"
#include "../rm.h"

enum { ROUNDS = 10, MEMORIES = 4 };

static uint64_t slowest;

static void timed(int64_t result, uint64_t since, const char *what)
{
    uint64_t took = monotonic_ns() / 1000 - since;

    must(result == NV_OK, what);
    if (took > slowest)
        slowest = took;
}

static void round_of_calls(void)
{
    uint32_t client = 0;
    int fd = open_client(&client);
    uint64_t begun;

    for (uint32_t i = 0; i < MEMORIES; i++) {
        begun = monotonic_ns() / 1000;
        timed(rm_memory(fd, client, FIRST_MEMORY + i, 4 * MIB), begun, "memory");
    }
    for (uint32_t i = 0; i < MEMORIES; i++) {
        begun = monotonic_ns() / 1000;
        timed(rm_free(fd, client, FIRST_MEMORY + i), begun, "free");
    }
    must(!rm_free(fd, client, FIRST_MEMORY), "free of nothing");
    close(fd);
}

int main(void)
{
    say("ready");
    while (told()) {
        slowest = 0;
        for (int i = 0; i < ROUNDS; i++)
            round_of_calls();
        say("well %llu", (unsigned long long)slowest);
    }
    return 0;
}
