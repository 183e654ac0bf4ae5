/* A container that wants to run whatever the scheduler says: makes channels with long kernels by itself, and
 * asks for its groups to be scheduled in every way there is, old ones and new ones, for as long as it is
 * told. Usage: resume SECONDS. Prints "ready" once its first kernel is submitted, "tried N" at its end. */
#include "gpu.h"
#include <time.h>

enum { MORE_GROUPS = 8 };

static const uint64_t kernel_ns = 10000000000;

static uint32_t group_handle(unsigned int group)
{
    return 0x100 * (group + 1);
}

static unsigned int insist(const struct gpu *g, uint32_t group)
{
    struct rm_tsg_schedule off = {.enable = 0}, on = {.enable = 1};
    struct rm_tsg_timeslice slice = {.timeslice_us = 1000000};
    struct rm_tsg_preempt preempt = {.wait = 0};
    struct rm_disable_channels enable = {.count = 1, .client = {g->client}, .channel = {group + 2}};
    uint32_t level = 2;
    const struct {
        uint32_t object, cmd;
        void *params;
        uint32_t bytes;
    } calls[] = {
        {group, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &off, sizeof(off)},
        {group, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &on, sizeof(on)},
        {group + 2, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, &on, sizeof(on)},
        {group, NVA06C_CTRL_CMD_SET_TIMESLICE, &slice, sizeof(slice)},
        {group, NVA06C_CTRL_CMD_PREEMPT, &preempt, sizeof(preempt)},
        {group, NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, &level, sizeof(level)},
        {group, NVA06C_CTRL_CMD_MAKE_REALTIME, &level, sizeof(level)},
        {SUBDEVICE, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &enable, sizeof(enable)},
    };
    enum { CALLS = sizeof(calls) / sizeof(*calls) };

    for (int i = 0; i < CALLS; i++)
        rm_control(g->ctl, g->client, calls[i].object, calls[i].cmd, calls[i].params, calls[i].bytes);
    return CALLS;
}

static void begin_kernel(const struct gpu *g, struct work *w, unsigned int group)
{
    must(work_make(g, w, group_handle(group)) == NV_OK, "group");
    submit(g, w, kernel_ns);
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    unsigned int tried = 0, groups = 1;
    struct work work[MORE_GROUPS];
    struct gpu g;

    gpu_open(&g);
    begin_kernel(&g, &work[0], 0);
    say("ready");
    while (time(NULL) < end) {
        for (unsigned int i = 0; i < groups; i++)
            tried += insist(&g, group_handle(i));
        if (groups < MORE_GROUPS) {
            begin_kernel(&g, &work[groups], groups);
            groups++;
        }
        ring(&g);
    }
    say("tried %u", tried);
    return 0;
}
