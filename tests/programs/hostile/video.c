/* A decoder without any library: a channel below a device, as libnvcuvid makes one, which executes so many
 * pieces of work for each line of input. Usage: video [PIECES PIECE_MS [KERNELS]]: so many kernels of 10 ms
 * before. Prints RM's answers: "channel C decoder D"; after each line's work "done". */
#include "../gpu.h"

enum { FIRST = 0x100, DECODER = 0x110, COMPUTES = 0x200, WAIT_US = 1000, MS = 1000000, KERNEL_NS = 10 * MS };

static void run(const struct gpu *g, struct work *w, uint64_t ns)
{
    submit(g, w, ns);
    while (*userd(w, RM_USERD_GP_GET) != w->put)
        usleep(WAIT_US);
}

int main(int argc, char **argv)
{
    uint32_t pieces = argc > 2 ? (uint32_t)atoi(argv[1]) : 20;
    uint64_t piece_ns = (argc > 2 ? strtoull(argv[2], NULL, 10) : 50) * MS;
    static const uint32_t classes[] = {NVC4B0_VIDEO_DECODER, NVC7B0_VIDEO_DECODER, NVB8B0_VIDEO_DECODER};
    int64_t made, decoder = NV_ERR_INVALID_CLASS;
    struct work w, computes;
    struct gpu g;

    gpu_open(&g);
    if (argc > 3 && work_make(&g, &computes, COMPUTES) == 0)
        for (int i = 0; i < atoi(argv[3]); i++)
            run(&g, &computes, KERNEL_NS);
    made = work_make_below(&g, &w, FIRST, RM_ENGINE_NVDEC0, DEVICE);
    for (size_t i = 0; decoder == NV_ERR_INVALID_CLASS && i < sizeof(classes) / sizeof(*classes); i++)
        decoder = rm_alloc(g.ctl, g.client, FIRST + 2, DECODER, classes[i], NULL, 0);
    say("channel %#llx decoder %#llx", (unsigned long long)made, (unsigned long long)decoder);
    while (!made && told()) {
        for (uint32_t i = 0; i < pieces; i++)
            run(&g, &w, piece_ns);
        say("done");
    }
    hold();
}
