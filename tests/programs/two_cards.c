/* The cards of a container by libcuda: what it says of peers, and memory of the last card that the first
 * reaches. Told a line at a time, does the next step; prints CUDA error numbers, and whether bytes were the
 * same:
 *
 *   contexts   "cards N, can A B", each way; "enabled E E", each way
 *   copies     memory on the last card, with bytes; they go to the first by cuMemcpyPeer
 *   opens      another process has that memory by its handle, with the first card current
 *   maps       memory without an address, for both cards to reach; bytes go from there to the first
 *   ends       all of it is freed, and no card reaches another
 */
#include "cuda_driver.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, BYTES = 64 * MIB, LAZY_PEERS = 1 };
struct location {
    int type, id;
};
struct properties {
    int type, kinds;
    struct location where;
    void *none;
    unsigned char flags[8];
};
struct access {
    struct location where;
    int flags;
};
struct handle {
    char bytes[64];
};
enum { PINNED = 1, DESCRIPTORS = 1, ON_DEVICE = 1, READ_WRITE = 3 };

static struct {
    int (*current)(void *context);
    int (*can)(int *can, int device, int peer);
    int (*enable)(void *context, unsigned int flags);
    int (*disable)(void *context);
    int (*to_card)(CUdeviceptr to, const void *from, size_t bytes);
    int (*from_card)(void *to, CUdeviceptr from, size_t bytes);
    int (*between)(CUdeviceptr to, void *to_context, CUdeviceptr from, void *from_context, size_t bytes);
    int (*share)(struct handle *handle, CUdeviceptr pointer);
    int (*open)(CUdeviceptr *pointer, struct handle handle, unsigned int flags);
    int (*close)(CUdeviceptr pointer);
    int (*create)(uint64_t *memory, size_t bytes, const struct properties *what, unsigned long long flags);
    int (*release)(uint64_t memory);
    int (*reserve)(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wish,
                   unsigned long long flags);
    int (*map)(CUdeviceptr at, size_t bytes, size_t from, uint64_t memory, unsigned long long flags);
    int (*give)(CUdeviceptr at, size_t bytes, const struct access *accesses, size_t count);
    int (*unmap)(CUdeviceptr at, size_t bytes);
} all;

static void *context[2];
static int device[2];
static CUdeviceptr here, there;
static char noise[BYTES], back[BYTES];

static void load(void)
{
    static const struct {
        void *at;
        const char *name;
    } names[] = {
        {&all.current, "cuCtxSetCurrent"},      {&all.can, "cuDeviceCanAccessPeer"},
        {&all.enable, "cuCtxEnablePeerAccess"}, {&all.disable, "cuCtxDisablePeerAccess"},
        {&all.to_card, "cuMemcpyHtoD_v2"},      {&all.from_card, "cuMemcpyDtoH_v2"},
        {&all.between, "cuMemcpyPeer"},         {&all.share, "cuIpcGetMemHandle"},
        {&all.open, "cuIpcOpenMemHandle_v2"},   {&all.close, "cuIpcCloseMemHandle"},
        {&all.create, "cuMemCreate"},           {&all.release, "cuMemRelease"},
        {&all.reserve, "cuMemAddressReserve"},  {&all.map, "cuMemMap"},
        {&all.give, "cuMemSetAccess"},          {&all.unmap, "cuMemUnmap"},
    };
    void *lib;

    cuda_load();
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        *(void **)names[i].at = cuda_symbol(lib, names[i].name);
}

static void wait_for_line(void)
{
    char line[16];

    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        exit(0);
}

/* The bytes as they are on the first card, which has just been given them from there. */
static int are_same(CUdeviceptr at, void *of)
{
    memset(back, 0, sizeof(back));
    cuda_must(all.current(context[0]), "cuCtxSetCurrent");
    cuda_must(all.between(here, context[0], at, of, BYTES), "cuMemcpyPeer");
    cuda_must(all.from_card(back, here, BYTES), "cuMemcpyDtoH");
    return !memcmp(back, noise, BYTES);
}

static void contexts(void)
{
    int cards, can[2] = {-1, -1}, enabled[2];

    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.device_count(&cards), "cuDeviceGetCount");
    for (int i = 0; i < 2; i++) {
        cuda_must(cuda.device_get(&device[i], i ? cards - 1 : 0), "cuDeviceGet");
        cuda_must(cuda.ctx_create(&context[i], 0, device[i]), "cuCtxCreate");
    }
    all.can(&can[0], 0, 1);
    all.can(&can[1], 1, 0);
    for (int i = 0; i < 2; i++) {
        cuda_must(all.current(context[i]), "cuCtxSetCurrent");
        enabled[i] = all.enable(context[1 - i], 0);
    }
    printf("cards %d, can %d %d, enabled %d %d\n", cards, can[0], can[1], enabled[0], enabled[1]);
}

static void copies(void)
{
    cuda_must(all.current(context[1]), "cuCtxSetCurrent");
    cuda_must(cuda.mem_alloc(&there, BYTES), "cuMemAlloc there");
    cuda_must(all.to_card(there, noise, BYTES), "cuMemcpyHtoD");
    cuda_must(all.current(context[0]), "cuCtxSetCurrent");
    cuda_must(cuda.mem_alloc(&here, BYTES), "cuMemAlloc here");
    printf("same %d\n", are_same(there, context[1]));
}

/* It was forked before the parent had a driver. */
static void other_process(int handles, int answers)
{
    int answer[2] = {0};
    struct handle handle;
    CUdeviceptr opened;

    if (read(handles, &handle, sizeof(handle)) != sizeof(handle))
        exit(0);
    load();
    context[0] = cuda_context();
    cuda_must(cuda.mem_alloc(&here, BYTES), "cuMemAlloc");
    answer[0] = all.open(&opened, handle, LAZY_PEERS);
    if (!answer[0]) {
        answer[1] = are_same(opened, context[0]);
        answer[0] = all.close(opened);
    }
    exit(write(answers, answer, sizeof(answer)) != sizeof(answer));
}

static void opens(int handles, int answers)
{
    struct handle handle;
    int answer[2];

    cuda_must(all.share(&handle, there), "cuIpcGetMemHandle");
    if (write(handles, &handle, sizeof(handle)) != sizeof(handle) ||
        read(answers, answer, sizeof(answer)) != sizeof(answer))
        exit(3);
    wait(NULL);
    printf("opened %d same %d\n", answer[0], answer[1]);
}

static CUdeviceptr mapped;
static uint64_t memory;

static void maps(void)
{
    struct properties what = {PINNED, DESCRIPTORS, {ON_DEVICE, device[1]}, NULL, {0}};
    struct access both[2] = {{{ON_DEVICE, device[1]}, READ_WRITE}, {{ON_DEVICE, device[0]}, READ_WRITE}};
    int given;

    cuda_must(all.create(&memory, BYTES, &what, 0), "cuMemCreate");
    cuda_must(all.reserve(&mapped, BYTES, 0, 0, 0), "cuMemAddressReserve");
    cuda_must(all.map(mapped, BYTES, 0, memory, 0), "cuMemMap");
    given = all.give(mapped, BYTES, both, 2);
    if (!given)
        cuda_must(all.to_card(mapped, noise, BYTES), "cuMemcpyHtoD");
    printf("given %d same %d\n", given, given ? 0 : are_same(mapped, context[1]));
}

static void ends(void)
{
    int disabled[2];

    cuda_must(all.unmap(mapped, BYTES), "cuMemUnmap");
    cuda_must(all.release(memory), "cuMemRelease");
    cuda_must(cuda.mem_free(here), "cuMemFree here");
    cuda_must(cuda.mem_free(there), "cuMemFree there");
    for (int i = 0; i < 2; i++) {
        cuda_must(all.current(context[i]), "cuCtxSetCurrent");
        disabled[i] = all.disable(context[1 - i]);
    }
    printf("disabled %d %d\n", disabled[0], disabled[1]);
}

int main(void)
{
    int down[2], up[2];

    if (pipe(down) < 0 || pipe(up) < 0)
        return 3;
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (char)(i ^ i >> 12);
    if (!fork())
        other_process(down[0], up[1]);
    load();
    puts("ready");
    wait_for_line();
    contexts();
    wait_for_line();
    copies();
    wait_for_line();
    opens(down[1], up[0]);
    wait_for_line();
    maps();
    wait_for_line();
    ends();
    wait_for_line();
    return 0;
}
