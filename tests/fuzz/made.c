/* Calls as programs make them, and as none does: mostly of names that mean something here, so that they
 * meet. */
#include "../../native_sched/nvidia/rm/export_abi.h"
#include "world.h"

enum { PARAMS_AT = 0x20000, KIB = 1024 };

static uint32_t some_client(struct choices *c)
{
    static const uint32_t clients[] = {0xc1, 0xc2, 0xc1, 0xc2, 0xc3, 0, 0x50000000, 0x50000001};

    return one_in(c, 32) ? (uint32_t)any_number(c) : clients[below(c, 8)];
}

static uint32_t some_handle(struct choices *c)
{
    static const uint32_t handles[] = {0xd0, 0xd0, 0xe2, 0xd1, 0xe0, 0xe1, 0xe2, 0xe3,
                                       0xe4, 0xe5, 0xe6, 0xc1, 0xc2, 0,    0xe0, 0xe1};

    return one_in(c, 32) ? (uint32_t)any_number(c) : handles[below(c, 16)];
}

static uint32_t some_class(struct choices *c)
{
    static const uint32_t classes[] = {NV01_ROOT_CLIENT,       NV01_DEVICE_0,          NV01_MEMORY_LOCAL_USER,
                                       KEPLER_CHANNEL_GROUP_A, VOLTA_CHANNEL_GPFIFO_A, NV01_MEMORY_SYSTEM,
                                       NV20_SUBDEVICE_0,       FERMI_VASPACE_A,        NV01_ROOT,
                                       VOLTA_USERMODE_A,       NV01_MEMORY_LOCAL_USER, NV01_MEMORY_LOCAL_USER,
                                       KEPLER_CHANNEL_GROUP_A, VOLTA_CHANNEL_GPFIFO_A};

    return one_in(c, 32) ? (uint32_t)any_number(c) : classes[below(c, 14)];
}

static const uint32_t exports[] = {
    NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD,    NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD,
    NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD,   NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD,
    NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD,  NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD,
    NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO,
};

static bool is_export(uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(exports) / sizeof(*exports); i++)
        if (exports[i] == cmd)
            return true;
    return false;
}

static uint32_t some_control(struct choices *c)
{
    static const uint32_t controls[] = {NV2080_CTRL_CMD_FB_GET_INFO_V2,
                                        NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS,
                                        NV0000_CTRL_CMD_GPU_GET_ID_INFO,
                                        NV2080_CTRL_CMD_GPU_GET_PIDS,
                                        NV2080_CTRL_CMD_GPU_GET_PID_INFO,
                                        NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
                                        NVA06C_CTRL_CMD_SET_TIMESLICE,
                                        NVA06C_CTRL_CMD_GET_TIMESLICE,
                                        NVA06C_CTRL_CMD_GET_INFO,
                                        NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
                                        NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS,
                                        NV2080_CTRL_CMD_FB_GET_INFO};

    if (one_in(c, 2))
        return exports[below(c, 8)];
    if (!one_in(c, 16))
        return controls[below(c, 12)];
    return one_in(c, 2) ? NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2 : (uint32_t)any_number(c);
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

    if (a.class_id == NV01_ROOT_CLIENT && !one_in(c, 8))
        a.handle = a.root;
    if (a.class_id == NV01_DEVICE_0 && !one_in(c, 8))
        a.parent = a.root;
    if (a.class_id == NV01_MEMORY_LOCAL_USER && one_in(c, 2))
        a.parent = 0xd0;
    if (a.class_id == KEPLER_CHANNEL_GROUP_A && one_in(c, 2))
        a.parent = 0xd0;
    a.params_size = one_in(c, 4) ? some_bytes(c) : 0;
    made->cmd = RM_CMD(NV_ESC_RM_ALLOC, sizeof(a));
    memcpy(made->outer, &a, sizeof(a));
    if (!one_in(c, 8))
        return;
    s = (struct rm_alloc_short){a.root, a.parent, a.handle, a.class_id, a.params, a.params_size, 0};
    made->cmd = RM_CMD(NV_ESC_RM_ALLOC, sizeof(s));
    memcpy(made->outer, &s, sizeof(s));
}

static void some_share(struct choices *c, struct made *made)
{
    struct rm_dup d = {.client = some_client(c), .parent = 0xd0, .handle = some_handle(c)};
    struct rm_share s = {.client = some_client(c), .handle = some_handle(c)};

    d.source_client = one_in(c, 2) ? d.client : some_client(c);
    d.source_handle = some_handle(c);
    s.policy = (struct rm_share_policy){
        .target = some_client(c),
        .access_mask = one_in(c, 8) ? one_byte(c) : RM_SHARE_ACCESS_DUP,
        .type = (uint16_t)below(c, 8),
        .action = (uint8_t)below(c, 8),
    };
    if (one_in(c, 3)) {
        made->cmd = RM_CMD(NV_ESC_RM_SHARE, sizeof(s));
        memcpy(made->outer, &s, sizeof(s));
    } else {
        made->cmd = RM_CMD(NV_ESC_RM_DUP_OBJECT, sizeof(d));
        memcpy(made->outer, &d, sizeof(d));
    }
}

void some_call(struct choices *c, struct made *made)
{
    static const uint32_t others[] = {RM_CMD(NV_ESC_CARD_INFO, OUTER_MAX),
                                      RM_CMD(NV_ESC_REGISTER_FD, 4),
                                      RM_CMD(NV_ESC_CHECK_VERSION_STR, 72),
                                      RM_CMD(NV_ESC_ATTACH_GPUS_TO_FD, 128),
                                      RM_CMD(NV_ESC_WAIT_OPEN_COMPLETE, 8),
                                      RM_CMD(NV_ESC_RM_ALLOC_MEMORY, 56),
                                      RM_CMD(NV_ESC_RM_VID_HEAP_CONTROL, 184),
                                      RM_CMD(NV_ESC_RM_DUP_OBJECT, 28),
                                      RM_CMD(NV_ESC_RM_SHARE, 24),
                                      RM_CMD(NV_ESC_RM_UNMAP_MEMORY, 32),
                                      RM_CMD(NV_ESC_IOCTL_XFER_CMD, 16),
                                      RM_CMD(NV_ESC_SYS_PARAMS, 8)};

    *made = (struct made){.fd = one_in(c, 6) ? below(c, 8) : 1, .pid = 200 + below(c, 4)};
    switch (below(c, 8)) {
    case 0:
    case 1:
    case 2:
        some_alloc(c, made);
        break;
    case 3: {
        struct rm_free f = {.root = some_client(c), .handle = some_handle(c)};

        made->cmd = RM_CMD(NV_ESC_RM_FREE, sizeof(f));
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

        if (ctl.cmd == NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2 && !one_in(c, 4)) {
            ctl.object = 0xd1;
            ctl.params_size = (uint32_t)rm_control_params(&world.m.rm, ctl.cmd);
        }
        if (is_export(ctl.cmd) && !one_in(c, 16)) {
            ctl.object = ctl.client;
            ctl.params_size = (uint32_t)rm_control_params(&world.m.rm, ctl.cmd);
        }
        made->cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl));
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

        made->cmd = RM_CMD(NV_ESC_RM_MAP_MEMORY, sizeof(map));
        memcpy(made->outer, &map, sizeof(map));
        break;
    }
    case 6:
        if (one_in(c, 2)) {
            some_share(c, made);
            break;
        }
        made->cmd = others[below(c, 12)];
        fill(c, made->outer, 64);
        break;
    default:
        made->cmd = (uint32_t)any_number(c);
        fill(c, made->outer, 64);
        break;
    }
}

/* Four objects at most, at the first places mostly. */
static void some_export(struct choices *c, uint32_t cmd, void *params, size_t bytes)
{
    union {
        struct rm_export_object one;
        struct rm_export_objects several;
        struct rm_export_create create;
        struct rm_import_object in;
        struct rm_import_objects ins;
    } p = {.several = {.fd = 0}};
    uint32_t device = one_in(c, 16) ? some_handle(c) : 0xd0;
    uint16_t count = (uint16_t)below(c, 4), index = (uint16_t)below(c, 3);
    int32_t fd = (int32_t)(one_in(c, 8) ? below(c, 8) : 1 + below(c, 2));

    switch (cmd) {
    case NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD:
        p.one = (struct rm_export_object){1, device, 0, some_handle(c), fd, one_in(c, 16)};
        break;
    case NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD:
        p.create = (struct rm_export_create){.device = device, .max = EXPORT_PLACES, .fd = fd};
        break;
    case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD:
        p.in = (struct rm_import_object){fd, 1, 0, device, some_handle(c)};
        break;
    case NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD:
        p.ins = (struct rm_import_objects){.fd = fd, .parent = device, .count = count, .index = index};
        for (int i = 0; i < 4; i++)
            p.ins.object[i] = some_handle(c);
        break;
    default:
        p.several = (struct rm_export_objects){.fd = fd, .device = device, .count = count, .index = index};
        p.several.max = (uint16_t)(one_in(c, 16) ? any_number(c) % (EXPORT_PLACES + 1) : EXPORT_PLACES);
        for (int i = 0; i < 4; i++)
            p.several.object[i] = some_handle(c);
        break;
    }
    memcpy(params, &p, bytes < sizeof(p) ? bytes : sizeof(p));
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
    if (RM_NR(made->cmd) == NV_ESC_RM_CONTROL && bytes == sizeof(struct rm_perfmon_head)) {
        ((struct rm_perfmon_head *)params)->buffer_bytes =
            one_in(c, 8) ? (uint32_t)any_number(c)
                         : rm_bytes(&world.m.rm, RM_BYTES_NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE) *
                               RM_PERFMON_SAMPLES;
        return;
    }
    if (RM_NR(made->cmd) == NV_ESC_RM_CONTROL &&
        is_export(((const struct rm_control *)(const void *)made->outer)->cmd)) {
        some_export(c, ((const struct rm_control *)(const void *)made->outer)->cmd, params, bytes);
        return;
    }
    if (RM_NR(made->cmd) != NV_ESC_RM_ALLOC) {
        *(uint8_t *)params = one_byte(c);
        if (bytes >= 12)
            fill(c, params, 12);
        return;
    }
    switch (a->class_id) {
    case NV01_DEVICE_0:
        *(uint8_t *)params = (uint8_t)below(c, 3);
        break;
    case NV01_MEMORY_LOCAL_USER:
        memory->size = one_in(c, 16) ? any_number(c) : sizes[below(c, 8)];
        break;
    case KEPLER_CHANNEL_GROUP_A:
        ((struct rm_channel_group *)params)->engine_type = one_in(c, 3) ? RM_ENGINE_COPY0
                                                                        : RM_ENGINE_GRAPHICS;
        break;
    case VOLTA_CHANNEL_GPFIFO_A:
        channel->userd_memory[0] = one_in(c, 4) ? 0 : some_handle(c);
        break;
    default:
        *(uint8_t *)params = one_byte(c);
    }
}
