/* Small memory objects, as many as it gets up to MOST. Usage: many_objects MOST. For every line on its input
 * it makes what it has not, up to the first that is refused: "made HELD status S". It ends with its input. */
#include "rm.h"

enum { BYTES = 64 << 10 };

int main(int argc, char **argv)
{
    uint32_t client = 0, held = 0, most = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;
    int fd = open_client(&client);
    int64_t status = NV_OK;

    say("ready");
    while (told()) {
        while (held < most && (status = rm_memory(fd, client, FIRST_MEMORY + held, BYTES)) == NV_OK)
            held++;
        say("made %u status %lld", held, (long long)status);
    }
    return 0;
}
