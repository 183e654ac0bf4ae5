/* Names objects of another container's client. Usage: foreign_handles own     makes the client 0xc0ffee01
 * with memory, a group and a channel; prints "made" foreign_handles other   uses those names; prints the
 * number of calls that were answered with success Both stand still. */
#include "../gpu.h"

enum { CLIENT = 0xc0ffee01, GROUP = 0x100 };

static void own(void)
{
    struct gpu g = {.client = CLIENT};
    struct work w;

    g.ctl = open_client(&g.client);
    g.card = register_card(&g);
    make_subdevice(&g);
    must(rm_memory(g.ctl, CLIENT, FIRST_MEMORY, 16 * MIB) == NV_OK, "memory");
    must(work_make(&g, &w, GROUP) == NV_OK, "group");
    say("made");
    hold();
}

static void other(void)
{
    static const uint32_t objects[] = {CLIENT, DEVICE, FIRST_MEMORY, GROUP, GROUP + 1, GROUP + 2};
    struct rm_tsg_schedule off = {.enable = 0};
    struct rm_tsg_timeslice slice = {.timeslice_us = 1};
    struct rm_disable_channels disable = {
        .disable = 1, .count = 1, .client = {CLIENT}, .channel = {GROUP + 2}};
    struct rm_fb_info info = {.count = 1};
    uint32_t mine = 0;
    int fd = open_client(&mine), good = 0;

    for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++) {
        struct rm_map_memory map = {
            .client = CLIENT, .device = DEVICE, .memory = objects[i], .length = 4096, .fd = fd};
        struct rm_memory m = {.owner = OWNER, .size = MIB};

        good += rm_free(fd, CLIENT, objects[i]) == NV_OK;
        /* The free of a handle that a client of one's own does not have succeeds. */
        rm_free(fd, mine, objects[i] == DEVICE ? FIRST_MEMORY : objects[i]);
        good += rm_alloc(fd, CLIENT, objects[i], 0x7777, NV01_MEMORY_LOCAL_USER, &m, sizeof(m)) == NV_OK;
        good += !ioctl(fd, RM_CMD(NV_ESC_RM_MAP_MEMORY, sizeof(map)), &map) && !map.status;
        good += rm_control(fd, CLIENT, objects[i], NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &off, sizeof(off)) ==
                NV_OK;
        good += rm_control(fd, CLIENT, objects[i], NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, &off, sizeof(off)) ==
                NV_OK;
        good += rm_control(fd, CLIENT, objects[i], NVA06C_CTRL_CMD_SET_TIMESLICE, &slice, sizeof(slice)) ==
                NV_OK;
        good += rm_control(fd, CLIENT, objects[i], NV2080_CTRL_CMD_FB_GET_INFO_V2, &info, sizeof(info)) ==
                NV_OK;
        good += rm_control(fd, mine, DEVICE, NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, &disable,
                           sizeof(disable)) == NV_OK;
    }
    /* The name itself is taken, and what is taken is not given twice. */
    good += rm_alloc(fd, CLIENT, 0, CLIENT, NV01_ROOT_CLIENT, NULL, 0) == NV_OK;
    say("%d", good);
    hold();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "own"))
        own();
    other();
}
