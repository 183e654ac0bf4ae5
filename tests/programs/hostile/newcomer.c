/* Makes new groups, and asks for old and new ones to run, at the moment it is told to: while it is suspended.
 * Usage: newcomer N. Prints "ready" with work on the card, reads a line, makes N groups with kernels, prints
 * "made N", and stands still. */
#include "../gpu.h"

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1;
    struct work w;
    struct gpu g;

    gpu_open(&g);
    must(work_make(&g, &w, 0x100) == NV_OK, "group");
    submit(&g, &w, 10000000000);
    say("ready");
    told();
    for (int i = 0; i < n; i++) {
        must(work_make(&g, &w, 0x1000 + 0x100 * (uint32_t)i) == NV_OK, "group");
        submit(&g, &w, 2000000000);
    }
    say("made %d", n);
    hold();
}
