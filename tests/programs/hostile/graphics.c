/* Graphics without any library: a group of graphics' engine with a channel, what 3D and 2D work with below
 * it, and pieces of work for each line of input. Usage: graphics [PIECES PIECE_MS]. Prints RM's answers:
 * "channel C draws D", and where it draws what of the card's memory the older calls show: "memory MIB regions
 * MIB"; after each line's work "done". */
#include "../gpu.h"

enum { FIRST = 0x100, DRAWS = 0x110, WAIT_US = 1000, MS = 1000000, KIB_SHIFT = 10 };

static void run(const struct gpu *g, struct work *w, uint64_t ns)
{
    submit(g, w, ns);
    while (*userd(w, RM_USERD_GP_GET) != w->put)
        usleep(WAIT_US);
}

static uint64_t memory_mib(const struct gpu *g)
{
    struct rm_fb_entry entry = {.index = RM_FB_TOTAL_RAM_SIZE};
    struct {
        uint32_t count, pad;
        uint64_t list;
    } asked = {.count = 1, .list = (uintptr_t)&entry};

    must(!rm_control(g->ctl, g->client, SUBDEVICE, NV2080_CTRL_CMD_FB_GET_INFO, &asked, sizeof(asked)),
         "memory");
    return entry.data >> KIB_SHIFT;
}

static uint64_t regions_mib(const struct gpu *g)
{
    static const uint32_t bytes[] = {904, 776}; /* from 580.65 on, and before */
    struct {
        uint32_t count, pad;
        uint64_t base, limit;
        uint8_t rest[880];
    } regions = {.count = 0};
    int64_t status = NV_ERR_INVALID_ARGUMENT;

    for (size_t i = 0; status == NV_ERR_INVALID_ARGUMENT && i < sizeof(bytes) / sizeof(*bytes); i++)
        status = rm_control(g->ctl, g->client, SUBDEVICE, NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO, &regions,
                            bytes[i]);
    must(!status, "regions");
    return regions.count ? (regions.limit + 1) >> 20 : 0;
}

int main(int argc, char **argv)
{
    uint32_t pieces = argc > 2 ? (uint32_t)atoi(argv[1]) : 20;
    uint64_t piece_ns = (argc > 2 ? strtoull(argv[2], NULL, 10) : 50) * MS;
    static const uint32_t classes[] = {TURING_A, AMPERE_A,    AMPERE_B,   ADA_A,
                                       HOPPER_A, BLACKWELL_A, BLACKWELL_B};
    uint32_t params[4] = {0}; /* NV_GR_ALLOCATION_PARAMETERS */
    int64_t made, draws = NV_ERR_INVALID_CLASS;
    struct work w = {.fd = -1};
    struct gpu g;

    gpu_open(&g);
    made = work_make(&g, &w, FIRST);
    for (size_t i = 0; draws == NV_ERR_INVALID_CLASS && i < sizeof(classes) / sizeof(*classes); i++)
        draws = rm_alloc(g.ctl, g.client, FIRST + 2, DRAWS, classes[i], &params, sizeof(params));
    say("channel %#llx draws %#llx", (unsigned long long)made, (unsigned long long)draws);
    if (!draws)
        say("memory %llu regions %llu", (unsigned long long)memory_mib(&g),
            (unsigned long long)regions_mib(&g));
    while (!made && told()) {
        for (uint32_t i = 0; i < pieces; i++)
            run(&g, &w, piece_ns);
        say("done");
    }
    hold();
}
