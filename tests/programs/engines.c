/* Long work on several engines at once. Usage: engines ENGINE..., each graphics, copy or video. Prints
 * "works" when all of it is submitted; ends at the end of its input. */
#include "gpu.h"

enum { ENGINES = 3, PIECES = 8, APART = 0x100 };
static const uint64_t piece_ns = 100000000000, copied_bytes = 1ull << 42;

/* Each with its own handles from `first` on. */
static int64_t make(const struct gpu *g, struct work *w, const char *engine, uint32_t first)
{
    if (!strcmp(engine, "video"))
        return work_make_below(g, w, first, RM_ENGINE_NVDEC0, DEVICE);
    return work_make_on(g, w, first, strcmp(engine, "copy") ? RM_ENGINE_GRAPHICS : RM_ENGINE_COPY0);
}

int main(int argc, char **argv)
{
    struct work w[ENGINES];
    struct gpu g;

    must(argc > 1 && argc <= 1 + ENGINES, "usage");
    gpu_open(&g);
    for (int i = 1; i < argc; i++) {
        bool copies = !strcmp(argv[i], "copy");

        must(!make(&g, &w[i - 1], argv[i], (uint32_t)i * APART), argv[i]);
        for (int piece = 0; piece < PIECES; piece++)
            submit_command(&g, &w[i - 1], copies ? SIM_CMD_COPY : SIM_CMD_KERNEL,
                           copies ? copied_bytes : piece_ns);
    }
    say("works");
    while (getchar() != EOF)
        ;
    return 0;
}
