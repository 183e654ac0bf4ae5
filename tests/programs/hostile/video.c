/* A decoder without any library: a channel below a device, as libnvcuvid makes one, which is kept busy for a
 * second for each line of input. Prints RM's answers: "channel C decoder D"; after each second "done". */
#include "../gpu.h"

enum { FIRST = 0x100, DECODER = 0x110, PIECES = 20, PIECE_NS = 50000000, WAIT_US = 1000 };

static void run(const struct gpu *g, struct work *w)
{
    submit(g, w, PIECE_NS);
    while (*userd(w, RM_USERD_GP_GET) != w->put)
        usleep(WAIT_US);
}

int main(void)
{
    static const uint32_t classes[] = {NVC4B0_VIDEO_DECODER, NVC7B0_VIDEO_DECODER, NVB8B0_VIDEO_DECODER};
    int64_t made, decoder = NV_ERR_INVALID_CLASS;
    struct work w;
    struct gpu g;

    gpu_open(&g);
    made = work_make_below(&g, &w, FIRST, RM_ENGINE_NVDEC0, DEVICE);
    for (size_t i = 0; decoder == NV_ERR_INVALID_CLASS && i < sizeof(classes) / sizeof(*classes); i++)
        decoder = rm_alloc(g.ctl, g.client, FIRST + 2, DECODER, classes[i], NULL, 0);
    say("channel %#llx decoder %#llx", (unsigned long long)made, (unsigned long long)decoder);
    while (!made && told()) {
        for (uint32_t i = 0; i < PIECES; i++)
            run(&g, &w);
        say("done");
    }
    hold();
}
