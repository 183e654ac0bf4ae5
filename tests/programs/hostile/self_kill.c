/* Processes with kernels on the card that end at any moment, some while they are being suspended or resumed.
 * Usage: self_kill SECONDS. Prints "ready", "done N" after N processes, and stands still with nothing
 * open. */
#include "../gpu.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* However little of a second a busy machine gives it. */
enum { PROCESSES_MIN = 40 };

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
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    uint64_t n = 0;

    say("ready");
    while (n < PROCESSES_MIN || time(NULL) < end) {
        if (n >= 2)
            wait(NULL);
        if (fork() == 0)
            life(n);
        n++;
    }
    while (wait(NULL) > 0)
        ;
    say("done %llu", (unsigned long long)n);
    hold();
}
