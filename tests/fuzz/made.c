/* Calls as programs make them, and as nobody does: mostly of names that mean something here, so that they meet. */
#include "world.h"

enum { PARAMS_AT = 0x20000, KIB = 1024 };

static uint32_t some_client(struct choices *c)
{
    static const uint32_t clients[] = {0xc1, 0xc2, 0xc1, 0xc2, 0xc3, 0, 0x50000000, 0x50000001};

    return one_in(c, 32) ? (uint32_t)any_number(c) : clients[below(c, 8)];
}

static uint32_t some_handle(struct choices *c)
{
    static const uint32_t handles[] = {0xd0, 0xd0, 0xd0, 0xd1, 0xe0, 0xe1, 0xe2, 0xe3,
                                       0xe4, 0xe5, 0xe6, 0xc1, 0xc2, 0,    0xe0, 0xe1};

    return one_in(c, 32) ? (uint32_t)any_number(c) : handles[below(c, 16)];
}

static uint32_t some_class(struct choices *c)
{
    static const uint32_t classes[] = {RM_CLASS_ROOT_CLIENT,
                                       RM_CLASS_DEVICE,
                                       RM_CLASS_MEMORY_LOCAL_USER,
                                       RM_CLASS_CHANNEL_GROUP,
                                       RM_CLASS_CHANNEL_VOLTA,
                                       RM_CLASS_MEMORY_SYSTEM,
                                       RM_CLASS_SUBDEVICE,
                                       RM_CLASS_VASPACE,
                                       RM_CLASS_ROOT,
                                       RM_CLASS_USERMODE_VOLTA,
                                       RM_CLASS_MEMORY_LOCAL_USER,
                                       RM_CLASS_MEMORY_LOCAL_USER,
                                       RM_CLASS_CHANNEL_GROUP,
                                       RM_CLASS_CHANNEL_VOLTA};

    return one_in(c, 32) ? (uint32_t)any_number(c) : classes[below(c, 14)];
}

static uint32_t some_control(struct choices *c)
{
    static const uint32_t controls[] = {
        RM_CTRL_FB_GET_INFO_V2,    RM_CTRL_GET_ATTACHED_IDS,  RM_CTRL_GET_ID_INFO,
        RM_CTRL_GPU_GET_PIDS,      RM_CTRL_GPU_GET_PID_INFO,  RM_CTRL_TSG_SCHEDULE,
        RM_CTRL_TSG_SET_TIMESLICE, RM_CTRL_TSG_GET_TIMESLICE, RM_CTRL_TSG_GET_INFO,
        RM_CTRL_CHANNEL_SCHEDULE,  RM_CTRL_DISABLE_CHANNELS,  RM_CTRL_FB_GET_INFO};

    if (!one_in(c, 16))
        return controls[below(c, 12)];
    return one_in(c, 2) ? RM_CTRL_GPU_PERFMON_UTIL : (uint32_t)any_number(c);
}

static uint32_t some_bytes(struct choices *c)
{
    static const uint32_t sizes[] = {0, 4, 3, 8, 32, 120, 128, 436, 536, 1028, 3812, 14408};

    return one_in(c, 8) ? (uint32_t)any_number(c) : sizes[below(c, 12)];
}

static uint64_t some_pointer(struct choices *c)
{
    return one_in(c, 16) ? any_number(c) : one_in(c, 8) ? 0 : PARAMS_AT;
}

static void some_alloc(struct choices *c, struct made *made)
{
    struct rm_alloc a = {
        .root = some_client(c),
        .parent = some_handle(c),
        .handle = some_handle(c),
        .class_id = some_class(c),
        .params = some_pointer(c),
    };
    struct rm_alloc_short s;

    if (a.class_id == RM_CLASS_ROOT_CLIENT && !one_in(c, 8))
        a.handle = a.root;
    if (a.class_id == RM_CLASS_DEVICE && !one_in(c, 8))
        a.parent = a.root;
    if (a.class_id == RM_CLASS_MEMORY_LOCAL_USER && one_in(c, 2))
        a.parent = 0xd0;
    if (a.class_id == RM_CLASS_CHANNEL_GROUP && one_in(c, 2))
        a.parent = 0xd0;
    a.params_size = one_in(c, 4) ? some_bytes(c) : 0;
    made->cmd = RM_CMD(RM_ESC_ALLOC, sizeof(a));
    memcpy(made->outer, &a, sizeof(a));
    if (!one_in(c, 8))
        return;
    s = (struct rm_alloc_short){a.root, a.parent, a.handle, a.class_id, a.params, a.params_size, 0};
    made->cmd = RM_CMD(RM_ESC_ALLOC, sizeof(s));
    memcpy(made->outer, &s, sizeof(s));
}

void some_call(struct choices *c, struct made *made)
{
    static const uint32_t others[] = {RM_CMD(RM_ESC_CARD_INFO, OUTER_MAX),
                                      RM_CMD(RM_ESC_REGISTER_FD, 4),
                                      RM_CMD(RM_ESC_CHECK_VERSION_STR, 72),
                                      RM_CMD(RM_ESC_ATTACH_GPUS, 128),
                                      RM_CMD(RM_ESC_WAIT_OPEN, 8),
                                      RM_CMD(RM_ESC_ALLOC_MEMORY, 56),
                                      RM_CMD(RM_ESC_VID_HEAP, 184),
                                      RM_CMD(RM_ESC_DUP_OBJECT, 28),
                                      RM_CMD(RM_ESC_SHARE, 24),
                                      RM_CMD(RM_ESC_UNMAP_MEMORY, 32),
                                      RM_CMD(RM_ESC_XFER, 16),
                                      RM_CMD(RM_ESC_SYS_PARAMS, 8)};

    *made = (struct made){.fd = one_in(c, 6) ? below(c, 8) : 1, .pid = 200 + below(c, 4)};
    switch (below(c, 8)) {
    case 0:
    case 1:
    case 2:
        some_alloc(c, made);
        break;
    case 3: {
        struct rm_free f = {.root = some_client(c), .handle = some_handle(c)};

        made->cmd = RM_CMD(RM_ESC_FREE, sizeof(f));
        memcpy(made->outer, &f, sizeof(f));
        break;
    }
    case 4: {
        struct rm_control ctl = {
            .client = some_client(c),
            .object = some_handle(c),
            .cmd = some_control(c),
            .params = some_pointer(c),
            .params_size = some_bytes(c),
        };

        if (ctl.cmd == RM_CTRL_GPU_PERFMON_UTIL && !one_in(c, 4)) {
            ctl.object = 0xd1;
            ctl.params_size = (uint32_t)rm_control_params(&world.m.rm, ctl.cmd);
        }
        made->cmd = RM_CMD(RM_ESC_CONTROL, sizeof(ctl));
        memcpy(made->outer, &ctl, sizeof(ctl));
        break;
    }
    case 5: {
        struct rm_map_memory map = {
            .client = some_client(c),
            .device = some_handle(c),
            .memory = some_handle(c),
            .fd = (int32_t)below(c, 8),
        };

        made->cmd = RM_CMD(RM_ESC_MAP_MEMORY, sizeof(map));
        memcpy(made->outer, &map, sizeof(map));
        break;
    }
    case 6:
        made->cmd = others[below(c, 12)];
        fill(c, made->outer, 64);
        break;
    default:
        made->cmd = (uint32_t)any_number(c);
        fill(c, made->outer, 64);
        break;
    }
}

void some_params(struct choices *c, const struct made *made, void *params, size_t bytes)
{
    static const uint64_t sizes[] = {64 * KIB,    1024 * KIB, 5000 * KIB, 20000 * KIB,
                                     40000 * KIB, 0,          1,          UINT64_MAX};
    const struct rm_alloc *a = (const void *)made->outer;
    struct rm_memory *memory = params;
    struct rm_channel *channel = params;

    if (one_in(c, 16)) {
        fill(c, params, bytes);
        return;
    }
    memset(params, 0, bytes);
    if (RM_NR(made->cmd) == RM_ESC_CONTROL && bytes == sizeof(struct rm_perfmon_head)) {
        ((struct rm_perfmon_head *)params)->buffer_bytes = one_in(c, 8) ? (uint32_t)any_number(c)
                                                                        : rm_bytes(&world.m.rm,
                                                                                   RM_BYTES_PERFMON_SAMPLE) *
                                                                              RM_PERFMON_SAMPLES;
        return;
    }
    if (RM_NR(made->cmd) != RM_ESC_ALLOC) {
        *(uint8_t *)params = one_byte(c);
        if (bytes >= 12)
            fill(c, params, 12);
        return;
    }
    switch (a->class_id) {
    case RM_CLASS_DEVICE:
        *(uint8_t *)params = (uint8_t)below(c, 3);
        break;
    case RM_CLASS_MEMORY_LOCAL_USER:
        memory->size = one_in(c, 16) ? any_number(c) : sizes[below(c, 8)];
        break;
    case RM_CLASS_CHANNEL_GROUP:
        ((struct rm_channel_group *)params)->engine_type = one_in(c, 3) ? RM_ENGINE_COPY0
                                                                        : RM_ENGINE_GRAPHICS;
        break;
    case RM_CLASS_CHANNEL_VOLTA:
        channel->userd_memory[0] = one_in(c, 4) ? 0 : some_handle(c);
        break;
    default:
        *(uint8_t *)params = one_byte(c);
    }
}
