/* A second thread changes what a call names while the first makes it: a reader that looks at it twice sees
 * two things. Usage: flip class|size|pointer|control SECONDS. Prints "done N", and stands still with what it
 * has. */
#include "../gpu.h"
#include <pthread.h>
#include <time.h>

/* However little of a second a busy machine gives it. */
enum { CALLS_MIN = 300 };

static _Alignas(64) volatile struct rm_alloc call;
static _Alignas(64) volatile struct rm_memory memory = {.owner = OWNER};
static _Alignas(64) volatile struct rm_control control;
static _Alignas(64) uint8_t params[1024];
static volatile bool stopped;
static const char *what;
static uint32_t group;

static void *flip_class(void *arg)
{
    static const uint32_t classes[] = {NV01_MEMORY_LOCAL_USER, NV01_MEMORY_SYSTEM, KEPLER_CHANNEL_GROUP_A,
                                       FERMI_VASPACE_A, NV01_ROOT_CLIENT};

    for (unsigned int i = 0; !stopped; i++)
        call.class_id = classes[i % (sizeof(classes) / sizeof(*classes))];
    return arg;
}

static void *flip_size(void *arg)
{
    static const uint64_t sizes[] = {65536, UINT64_MAX, 64 * MIB, 0, 1ull << 40, 1};

    for (unsigned int i = 0; !stopped; i++) {
        memory.size = sizes[i % (sizeof(sizes) / sizeof(*sizes))];
        call.params_size = i % 3 ? sizeof(memory) : 120;
    }
    return arg;
}

static void *flip_pointer(void *arg)
{
    uintptr_t places[] = {(uintptr_t)&memory, 0, (uintptr_t)&call, 4096, UINTPTR_MAX - 64, 1ul << 47};

    for (unsigned int i = 0; !stopped; i++)
        call.params = places[i % (sizeof(places) / sizeof(*places))];
    return arg;
}

static void *flip_control(void *arg)
{
    static const struct {
        uint32_t cmd, bytes;
    } rows[] = {
        {NVA06C_CTRL_CMD_GET_INFO, 4},
        {NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, 3},
        {NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, 536},
        {NVA06C_CTRL_CMD_SET_TIMESLICE, 8},
        {NVA06C_CTRL_CMD_PREEMPT, 8},
        {NV2080_CTRL_CMD_FB_GET_INFO, 16},
        {NVA06C_CTRL_CMD_MAKE_REALTIME, 4},
        {NV0000_CTRL_CMD_GPU_GET_ID_INFO, sizeof(struct rm_id_info)},
    };

    for (unsigned int i = 0; !stopped; i++) {
        control.cmd = rows[i % 8].cmd;
        control.params_size = rows[i / 3 % 8].bytes;
        control.object = i % 2 ? group : SUBDEVICE;
    }
    return arg;
}

static void alloc_once(int fd, uint32_t client, uint32_t handle)
{
    call.root = client;
    call.parent = DEVICE;
    call.handle = handle;
    if (strcmp(what, "class"))
        call.class_id = NV01_MEMORY_LOCAL_USER;
    if (strcmp(what, "pointer"))
        call.params = (uintptr_t)&memory;
    if (strcmp(what, "size")) {
        memory.size = 2 * MIB;
        call.params_size = 0;
    }
    ioctl(fd, RM_CMD(NV_ESC_RM_ALLOC, sizeof(call)), &call);
}

static void control_once(const struct gpu *g)
{
    control.client = g->client;
    control.params = (uintptr_t)params;
    ioctl(g->ctl, RM_CMD(NV_ESC_RM_CONTROL, sizeof(control)), &control);
}

int main(int argc, char **argv)
{
    void *(*flips)(void *) = flip_class;
    time_t end = time(NULL) + (argc > 2 ? atoi(argv[2]) : 1);
    pthread_t thread;
    uint32_t n = 0;
    struct work w;
    struct gpu g;

    what = argc > 1 ? argv[1] : "";
    gpu_open(&g);
    if (!strcmp(what, "size"))
        flips = flip_size;
    else if (!strcmp(what, "pointer"))
        flips = flip_pointer;
    else if (!strcmp(what, "control"))
        flips = flip_control;
    if (flips == flip_control)
        must(work_make(&g, &w, group = 0x100) == NV_OK, "group");
    must(!pthread_create(&thread, NULL, flips, NULL), "thread");
    for (; n < CALLS_MIN || time(NULL) < end; n++) {
        if (flips == flip_control)
            control_once(&g);
        else
            alloc_once(g.ctl, g.client, FIRST_MEMORY + n % 512);
        if (n % 700 == 699 && flips != flip_control)
            rm_free(g.ctl, g.client, FIRST_MEMORY + n % 512), rm_free(g.ctl, g.client, DEVICE),
                rm_device(g.ctl, g.client);
    }
    stopped = true;
    pthread_join(thread, NULL);
    say("done %u", n);
    hold();
}
