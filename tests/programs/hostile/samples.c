/* Reads its utilisation into places that are not there, that end too soon, that are the call itself; with
 * sizes that are not the ring's; by objects that have none; while another thread changes what was said.
 * Prints "done A of B, C beside" and stands still: A of B calls came to what they must, C bytes were written
 * beside the parameters or not at all. Usage: samples [BRANCH], of the driver; 580. */
#include "../../../native_sched/nvidia/rm/perfmon.h"
#include "../../../native_sched/nvidia/rm/table.c"
#include "../rm.h"
#include <pthread.h>
#include <sys/mman.h>

enum { PAGE = 4096, STALE = 0xa5, RACES = 300 };

static uint32_t client, bytes, ring_bytes;
static unsigned int good, tried, beside;
static int fd;

static int64_t ask(uint32_t object, void *params, uint32_t size)
{
    return rm_control(fd, client, object, NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, params,
                      size);
}

static void expect(int64_t got, int64_t wanted)
{
    tried++;
    good += got == wanted;
    if (got != wanted)
        say("call %u: %lld, not %lld", tried, (long long)got, (long long)wanted);
}

/* `size` bytes that end where memory ends, stale but for a head. */
static uint8_t *at_the_end(uint32_t size, uint32_t said)
{
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    uint8_t *pages = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rm_perfmon_head head = {.type = RM_PERFMON_UTIL, .buffer_bytes = said};

    must(pages != MAP_FAILED, "mmap");
    munmap(pages + whole, PAGE);
    memset(pages, STALE, whole);
    memcpy(pages + whole - size, &head, sizeof(head));
    return pages + whole - size;
}

static void whole_ring(void)
{
    uint8_t *params = at_the_end(bytes, ring_bytes);

    expect(ask(SUBDEVICE, params, bytes), NV_OK);
    for (uint8_t *p = (void *)((uintptr_t)params / PAGE * PAGE); p < params; p++)
        beside += *p != STALE;
    for (uint32_t i = 0; i + 4 <= bytes; i += 4)
        beside += params[i] == STALE && params[i + 1] == STALE && params[i + 2] == STALE;
}

static void sizes(void)
{
    const uint32_t size[] = {0, 1, 16, bytes - 1, bytes + 1, 34000, 16384, UINT32_MAX};
    const uint32_t said[] = {0, 1, ring_bytes - 1, ring_bytes + 1, bytes, UINT32_MAX, 1u << 31};

    for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++)
        if (size[i] != bytes) /* a driver has one of them */
            expect(ask(SUBDEVICE, at_the_end(bytes, ring_bytes), size[i]), NV_ERR_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++)
        expect(ask(SUBDEVICE, at_the_end(bytes, said[i]), bytes), NV_ERR_INVALID_ARGUMENT);
}

static void places(void)
{
    const uintptr_t at[] = {1, PAGE, UINTPTR_MAX, UINTPTR_MAX - 127, 1ul << 47, 0xffff800000000000ul};
    struct rm_control *own = (void *)at_the_end(bytes, ring_bytes);

    expect(ask(SUBDEVICE, NULL, bytes), NV_ERR_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++)
        expect(ask(SUBDEVICE, (void *)at[i], bytes), -EFAULT);
    /* The head is there, and not all of the ring. */
    expect(ask(SUBDEVICE, at_the_end(sizeof(struct rm_perfmon_head), ring_bytes), bytes), -EFAULT);
    expect(ask(SUBDEVICE, at_the_end(3 * PAGE, ring_bytes), bytes), -EFAULT);
    expect(ask(SUBDEVICE, at_the_end(bytes - 1, ring_bytes), bytes), -EFAULT);
    /* The call itself is its own parameters: its second word, which names an object, would have to be the
     * ring's size. */
    *own = (struct rm_control){
        .client = client,
        .object = SUBDEVICE,
        .cmd = NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2,
        .params = (uintptr_t)own,
        .params_size = bytes,
    };
    expect(ioctl(fd, RM_CMD(NV_ESC_RM_CONTROL, sizeof(*own)), own) ? -errno : (int64_t)own->status,
           NV_ERR_INVALID_ARGUMENT);
}

static void objects(void)
{
    const uint32_t object[] = {0, 0x77, FIRST_MEMORY + 7, UINT32_MAX};

    expect(ask(DEVICE, at_the_end(bytes, ring_bytes), bytes), NV_ERR_NOT_SUPPORTED);
    expect(ask(client, at_the_end(bytes, ring_bytes), bytes), NV_ERR_INVALID_OBJECT_HANDLE);
    for (size_t i = 0; i < sizeof(object) / sizeof(*object); i++)
        expect(ask(object[i], at_the_end(bytes, ring_bytes), bytes), NV_ERR_INVALID_OBJECT_HANDLE);
}

static void *change(void *arg)
{
    volatile struct rm_perfmon_head *head = arg;

    for (;;) {
        head->buffer_bytes = UINT32_MAX;
        head->count = UINT32_MAX;
        head->tracker = UINT32_MAX;
        head->buffer_bytes = ring_bytes;
    }
    return NULL;
}

static void races(void)
{
    uint8_t *params = at_the_end(bytes, ring_bytes);
    pthread_t thread;

    must(!pthread_create(&thread, NULL, change, params), "thread");
    for (int i = 0; i < RACES; i++) {
        int64_t status = ask(SUBDEVICE, params, bytes);

        expect(status == NV_ERR_INVALID_ARGUMENT ? NV_OK : status, NV_OK);
    }
}

int main(int argc, char **argv)
{
    struct rm_subdevice subdevice = {.id = 0};
    struct rm_table table;

    must(!rm_table_pick(argc > 1 ? argv[1] : "580", &table), "table");
    bytes = (uint32_t)rm_control_params(&table, NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2);
    ring_bytes = bytes - (uint32_t)sizeof(struct rm_perfmon_head);
    fd = open_client(&client);
    must(!rm_alloc(fd, client, DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice)),
         "subdevice");
    whole_ring();
    sizes();
    places();
    objects();
    races();
    whole_ring();
    say("done %u of %u, %u beside", good, tried, beside);
    hold();
}
