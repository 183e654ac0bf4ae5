/* Times RM ioctls as a tenant sees them and prints one JSON object: for each kind of call the median and p99
 * in nanoseconds over N calls. Static, so that it runs in an empty root. Usage: rm_latency N
 *
 *   unrelated   an ioctl that the filter allows: what all others pay
 *   caught      an ioctl of Linux that the filter notifies, and the arbiter lets go on by its number
 *   answered    GET_ATTACHED_IDS: decoded and answered by the arbiter alone, two copies each way
 *   refused     an allocation over the cap
 *   view        FB_GET_INFO_V2: the same with one round trip to the card's process in it
 *   alloc_free  an allocation of 64 KiB and its free: two mediated calls with the card in each */
#include "../../base/clock.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ctl;
static uint32_t client;
enum { DEVICE = 0xd0, SUBDEVICE = 0xd1, MEMORY = 0xd2 };

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void fail(const char *what, uint32_t status)
{
    fprintf(stderr, "rm_latency: %s: status %#x, %s\n", what, status, strerror(errno));
    exit(1);
}

static uint32_t alloc(uint32_t parent, uint32_t handle, uint32_t class_id, void *params, uint32_t bytes)
{
    struct rm_alloc a = {
        .root = client,
        .parent = parent,
        .handle = handle,
        .class_id = class_id,
        .params = (uintptr_t)params,
        .params_size = bytes,
    };

    if (ioctl(ctl, RM_CMD(NV_ESC_RM_ALLOC, sizeof(a)), &a))
        fail("alloc", 0);
    if (class_id == NV01_ROOT_CLIENT)
        client = a.handle;
    return a.status;
}

static uint32_t alloc_memory(uint64_t bytes)
{
    struct rm_memory m = {.owner = 1, .size = bytes, .alignment = 65536};

    return alloc(DEVICE, MEMORY, NV01_MEMORY_LOCAL_USER, &m, sizeof(m));
}

static void unrelated(void)
{
    int x;

    ioctl(ctl, TIOCGWINSZ, &x);
}

static void unwatched(void)
{
    struct btrfs_ioctl_qgroup_create_args x = {0};

    ioctl(ctl, BTRFS_IOC_QGROUP_CREATE, &x);
}

static void control(uint32_t object, uint32_t cmd, void *params, uint32_t bytes)
{
    struct rm_control c = {
        .client = client,
        .object = object,
        .cmd = cmd,
        .params = (uintptr_t)params,
        .params_size = bytes,
    };

    if (ioctl(ctl, RM_CMD(NV_ESC_RM_CONTROL, sizeof(c)), &c) || c.status)
        fail("control", c.status);
}

static void answered(void)
{
    struct rm_gpu_ids ids = {{0}};

    control(client, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, &ids, sizeof(ids));
}

static void refused(void)
{
    if (alloc_memory(1ull << 50) != NV_ERR_NO_MEMORY)
        fail("an allocation over the cap was not refused", 0);
}

static void view(void)
{
    struct rm_fb_info info = {.count = 2, .entry = {{RM_FB_TOTAL_RAM_SIZE, 0}, {RM_FB_HEAP_FREE, 0}}};

    control(SUBDEVICE, NV2080_CTRL_CMD_FB_GET_INFO_V2, &info, sizeof(info));
}

static void alloc_free(void)
{
    struct rm_free f = {.root = client, .parent = DEVICE, .handle = MEMORY};
    uint32_t status = alloc_memory(65536);

    if (status)
        fail("alloc memory", status);
    if (ioctl(ctl, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f) || f.status)
        fail("free", f.status);
}

static void measure(const char *name, void (*call)(void), int n, const char *end)
{
    uint64_t *took = malloc((size_t)n * sizeof(*took)), start;

    for (int i = 0; i < n / 10; i++)
        call();
    for (int i = 0; i < n; i++) {
        start = monotonic_ns();
        call();
        took[i] = monotonic_ns() - start;
    }
    qsort(took, (size_t)n, sizeof(*took), compare);
    printf("\"%s\": {\"p50_ns\": %llu, \"p99_ns\": %llu}%s", name, (unsigned long long)took[n / 2],
           (unsigned long long)took[(size_t)n * 99 / 100], end);
    free(took);
}

int main(int argc, char **argv)
{
    struct rm_device dev = {.id = 0};
    struct rm_subdevice sub = {.id = 0};
    struct rm_card_info cards[RM_MAX_CARDS] = {0};
    int n = argc > 1 ? atoi(argv[1]) : 20000;
    uint32_t status;

    ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
    if (ctl < 0)
        fail("/dev/nvidiactl", 0);
    /* RM gives a device only to a process that has the card open (nv_is_gpu_accessible()). */
    if (open("/dev/nvidia0", O_RDWR | O_CLOEXEC) < 0)
        fail("/dev/nvidia0", 0);
    if (ioctl(ctl, RM_CMD(NV_ESC_CARD_INFO, sizeof(cards)), cards))
        fail("CARD_INFO", 0);
    if ((status = alloc(0, 0, NV01_ROOT_CLIENT, NULL, 0)))
        fail("root client", status);
    /* Instances are the card's own numbers; the first granted one answers. */
    for (dev.id = 0; dev.id < RM_MAX_CARDS; dev.id++)
        if (!(status = alloc(client, DEVICE, NV01_DEVICE_0, &dev, sizeof(dev))))
            break;
    if (status || (status = alloc(DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &sub, sizeof(sub))))
        fail("device", status);
    printf("{");
    measure("unrelated", unrelated, n, ", ");
    measure("caught", unwatched, n, ", ");
    measure("answered", answered, n, ", ");
    measure("refused", refused, n, ", ");
    measure("view", view, n, ", ");
    measure("alloc_free", alloc_free, n / 2, "");
    printf("}\n");
    return 0;
}
