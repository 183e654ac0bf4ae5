/* Makes channel groups, each with a channel that has work, until it may not make another.
 * Usage: many_groups N channels|groups|clients   channels: all in one group; clients: each group by a client
 * of its own Prints "made N status S", and stands still. */
#include "../gpu.h"

static int64_t another_channel(const struct gpu *g, const struct work *w, uint32_t handle)
{
    struct rm_channel channel = {
        .gpfifo_offset = RING_AT,
        .gpfifo_entries = RING_ENTRIES,
        .userd_memory = {w->group + 1},
    };

    return rm_alloc(g->ctl, g->client, w->group, handle, HOPPER_CHANNEL_GPFIFO_A, &channel, sizeof(channel));
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1, made = 0;
    bool channels = argc > 2 && !strcmp(argv[2], "channels"),
         clients = argc > 2 && !strcmp(argv[2], "clients");
    int64_t status = NV_OK;
    struct work w;
    struct gpu g;

    gpu_open(&g);
    for (; made < n && status == NV_OK; made++) {
        if (clients && made)
            gpu_open(&g);
        if (channels && made % 100)
            status = another_channel(&g, &w, 0x100000 + (uint32_t)made);
        else if ((status = work_make(&g, &w, 0x100 * (uint32_t)(made + 1))) == NV_OK)
            submit(&g, &w, 10000000000);
        if (w.fd >= 0 && made % 100 == 0)
            continue;
        if (!channels) {
            munmap(w.at, MEMORY_BYTES);
            close(w.fd);
        }
    }
    if (status != NV_OK)
        made--;
    say("made %d status %#llx", made, (unsigned long long)status);
    hold();
}
