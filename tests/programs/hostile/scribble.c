/* Writes what it likes where the scheduler looks, while it has kernels on the card.
 * Usage: scribble idle KERNEL_MS    GP_PUT and GP_GET always look as if all was done, with endless kernels
 *        scribble busy              they look as if there was always more, and nothing is ever executed
 *        scribble flip KERNEL_MS    any values, as fast as it can, and all over the memory besides the
 * commands Prints "ready" once it is at it, and goes on until it is killed. */
#include "../../../base/clock.h"
#include "../gpu.h"

/* The card takes GP_PUT when the bell rings; a moment later it says something else again. */
static void seem_idle(const struct gpu *g, struct work *w, uint64_t kernel_ms)
{
    uint64_t next = monotonic_ns() / 1000000;

    for (;;) {
        if (monotonic_ns() / 1000000 >= next) {
            submit(g, w, kernel_ms * 1000000);
            next += kernel_ms;
            usleep(50);
        }
        *userd(w, RM_USERD_GP_GET) = 0;
        *userd(w, RM_USERD_GP_PUT) = 0;
    }
}

static void seem_busy(struct work *w)
{
    for (uint32_t i = 1;; i++) {
        *userd(w, RM_USERD_GP_GET) = 0;
        *userd(w, RM_USERD_GP_PUT) = i;
        usleep(100);
    }
}

static void flip(const struct gpu *g, struct work *w, uint64_t kernel_ms)
{
    uint64_t state = 7;

    for (;;) {
        for (int i = 0; i < 20000; i++)
            *userd(w, below(&state, RM_USERD_BYTES / 4) * 4) = (uint32_t)next_random(&state);
        for (int i = 0; i < 200; i++)
            ((volatile uint8_t *)w->at)[RING_AT + below(&state, RING_ENTRIES * 8)] = (uint8_t)below(&state,
                                                                                                    256);
        submit(g, w, kernel_ms * 1000000);
    }
}

int main(int argc, char **argv)
{
    uint64_t kernel_ms = argc > 2 ? (uint64_t)atoi(argv[2]) : 10;
    struct work w, other;
    struct gpu g;

    gpu_open(&g);
    must(work_make(&g, &w, 0x100) == NV_OK, "group");
    must(work_make(&g, &other, 0x200) == NV_OK, "second group");
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "busy")) {
        say("ready");
        seem_busy(&w);
    }
    submit(&g, &other, 10000000000);
    submit(&g, &w, kernel_ms * 1000000);
    say("ready");
    if (!strcmp(argv[1], "idle"))
        seem_idle(&g, &w, kernel_ms);
    flip(&g, &w, kernel_ms);
}
