/* Takes memory in ever smaller pieces until not one more can be had, without any library.
 * Prints "held BYTES status S", and stands still. */
#include "../rm.h"

int main(void)
{
    uint64_t held = 0, bytes = 256 * MIB;
    uint32_t client = 0, handle = FIRST_MEMORY;
    int fd = open_client(&client);
    int64_t status = NV_OK;

    for (; bytes >= 65536; bytes /= 2)
        while ((status = rm_memory(fd, client, handle++, bytes)) == NV_OK)
            held += bytes;
    say("held %llu status %#llx", (unsigned long long)held, (unsigned long long)status);
    hold();
}
