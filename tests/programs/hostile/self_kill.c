/* Processes with kernels on the card that end at any moment, some while they are being suspended or resumed.
 * Usage: self_kill SECONDS. Prints "ready", "done N" after N processes, and stands still with nothing
 * open. */
#include "../gpu.h"
#include "lives.h"
#include <signal.h>

static void life(uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    struct work w[3];
    struct gpu g;

    gpu_open(&g);
    for (uint32_t i = 0; i < 3; i++) {
        must(work_make(&g, &w[i], 0x100 * (i + 1)) == NV_OK, "group");
        submit(&g, &w[i], 1000000000);
    }
    usleep(below(&state, 40000));
    if (below(&state, 3) == 0)
        rm_free(g.ctl, g.client, below(&state, 2) ? g.client : 0x200);
    if (below(&state, 2))
        kill(getpid(), SIGKILL);
    _exit(0);
}

int main(int argc, char **argv)
{
    say("ready");
    lives(argc > 1 ? atoi(argv[1]) : 1, 2, life);
    hold();
}
