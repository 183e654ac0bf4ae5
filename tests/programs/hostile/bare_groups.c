/* Channel groups of a client that has no subdevice, by which they would be suspended, and the
 * attempt to take away the subdevice of another one. Prints "made N status S free F", and stands still. */
#include "../gpu.h"

int main(void)
{
    struct rm_channel_group tsg = {.engine_type = RM_ENGINE_GRAPHICS};
    uint32_t bare = 0, handle = 0x100;
    int fd = open_client(&bare);
    int64_t status, freed;
    struct work w;
    struct gpu g;

    while (!(status = rm_alloc(fd, bare, DEVICE, handle, KEPLER_CHANNEL_GROUP_A, &tsg, sizeof(tsg))))
        handle++;
    must(rm_free(fd, bare, DEVICE) == NV_OK, "free");
    gpu_open(&g);
    must(work_make(&g, &w, 0x100) == NV_OK, "group");
    submit(&g, &w, 10000000000);
    freed = rm_free(g.ctl, g.client, SUBDEVICE);
    say("made %u status %#llx free %#llx", handle - 0x100, (unsigned long long)status,
        (unsigned long long)freed);
    hold();
}
