/* Makes something and ends it, as often as it is told. Usage: again managed|context|export
 *
 * Each line of input is a number; prints how many MiB it sees free after as many times. What it makes: a
 * managed range of 1 GiB; a context; memory of 64 MiB with a descriptor, imported by that. */
#include "cuda_driver.h"
#include <string.h>
#include <unistd.h>

struct location {
    int type, kinds, place, id;
    void *none;
    unsigned char flags[8];
};

static struct {
    int (*managed)(CUdeviceptr *pointer, size_t bytes, unsigned int flags);
    int (*create)(uint64_t *memory, size_t bytes, const struct location *where, unsigned long long flags);
    int (*release)(uint64_t memory);
    int (*give)(void *fd, uint64_t memory, int kind, unsigned long long flags);
    int (*take)(uint64_t *memory, void *fd, int kind);
} more;

static void managed(void)
{
    CUdeviceptr p;

    cuda_must(more.managed(&p, 1ull << 30, 1), "cuMemAllocManaged");
    *(volatile char *)(uintptr_t)p = 1;
    cuda_must(cuda.mem_free(p), "cuMemFree");
}

static void context(void)
{
    void *ctx;

    cuda_must(cuda.ctx_create(&ctx, 0, 0), "cuCtxCreate");
    cuda_must(cuda.ctx_destroy(ctx), "cuCtxDestroy");
}

static void export(void)
{
    const struct location device = {.type = 1, .kinds = 1, .place = 1};
    uint64_t memory, imported;
    int fd;

    cuda_must(more.create(&memory, 64ull << 20, &device, 0), "cuMemCreate");
    cuda_must(more.give(&fd, memory, 1, 0), "cuMemExportToShareableHandle");
    cuda_must(more.take(&imported, (void *)(intptr_t)fd, 1), "cuMemImportFromShareableHandle");
    cuda_must(more.release(memory), "cuMemRelease");
    close(fd);
    cuda_must(more.release(imported), "cuMemRelease");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*once)(void);
    } things[] = {{"managed", managed}, {"context", context}, {"export", export}};
    size_t left, all;
    char line[32];
    void *lib, *ctx;

    cuda_load();
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&more.managed = cuda_symbol(lib, "cuMemAllocManaged");
    *(void **)&more.create = cuda_symbol(lib, "cuMemCreate");
    *(void **)&more.release = cuda_symbol(lib, "cuMemRelease");
    *(void **)&more.give = cuda_symbol(lib, "cuMemExportToShareableHandle");
    *(void **)&more.take = cuda_symbol(lib, "cuMemImportFromShareableHandle");
    cuda_must(cuda.init(0), "cuInit");
    cuda_must(cuda.ctx_create(&ctx, 0, 0), "cuCtxCreate");
    while (fgets(line, sizeof(line), stdin)) {
        for (int n = atoi(line); n > 0; n--)
            for (size_t i = 0; i < sizeof(things) / sizeof(*things); i++)
                if (argc > 1 && !strcmp(argv[1], things[i].name))
                    things[i].once();
        cuda_must(cuda.mem_info(&left, &all), "cuMemGetInfo");
        dprintf(1, "%zu\n", left >> 20);
    }
    return 0;
}
