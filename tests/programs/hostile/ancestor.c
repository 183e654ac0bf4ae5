/* Frees what others hang from, twice, in every order, and makes it again under the same names. Usage:
 * ancestor ROUNDS. Prints "held MIB after ROUNDS" when nothing but what it still has is to be counted, and
 * stands still. */
#include "../rm.h"

enum { MEMORIES = 12 };

int main(int argc, char **argv)
{
    unsigned int rounds = argc > 1 ? (unsigned int)atoi(argv[1]) : 1, held = 0;
    uint64_t state = 42;
    uint32_t client = 0xc0ffee;
    int fd = open_node("/dev/nvidiactl");

    for (unsigned int i = 0; i < rounds; i++) {
        uint32_t gone[3] = {client, DEVICE, FIRST_MEMORY + below(&state, MEMORIES)};

        rm_alloc(fd, client, 0, client, NV01_ROOT_CLIENT, NULL, 0);
        rm_device(fd, client);
        held = 0;
        for (uint32_t k = 0; k < MEMORIES; k++)
            held += rm_memory(fd, client, FIRST_MEMORY + k, MIB) == NV_OK;
        for (int k = 0; k < 4 && i + 1 < rounds; k++)
            rm_free(fd, client, gone[below(&state, 3)]);
        if (i + 1 < rounds)
            rm_free(fd, client, below(&state, 2) ? client : DEVICE);
        if (i + 2 == rounds)
            rm_free(fd, client, client);
    }
    say("held %u after %u", held, rounds);
    hold();
}
