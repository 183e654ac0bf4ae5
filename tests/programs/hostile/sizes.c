/* Sizes that are nothing, everything, and more than numbers hold; parameters that lie in the call itself,
 * across the end of memory, in the kernel; structs of other sizes than are asked for. Prints "done N held
 * BYTES", and stands still: N calls were answered with RM's status and BYTES were given. */
#include "../rm.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

static uint32_t client, handle = FIRST_MEMORY;
static uint64_t held;
static unsigned int answered;

static int64_t one(int fd, uint32_t class_id, void *params, uint32_t bytes)
{
    int64_t status = rm_alloc(fd, client, DEVICE, handle++, class_id, params, bytes);

    answered += status >= 0;
    return status;
}

static void amounts(int fd)
{
    static const uint64_t size[] = {0,
                                    1,
                                    65535,
                                    65537,
                                    1ull << 31,
                                    1ull << 32,
                                    1ull << 63,
                                    UINT64_MAX,
                                    UINT64_MAX - 1,
                                    UINT64_MAX - 65535,
                                    UINT64_MAX - 65536,
                                    (1ull << 63) - 1};
    static const uint32_t bytes[] = {0, 1, 119, 120, 121, 127, 128, 129, 4096, 16384, UINT32_MAX};

    for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++) {
        for (size_t k = 0; k < sizeof(bytes) / sizeof(*bytes); k++) {
            struct rm_memory m = {
                .owner = OWNER, .size = size[i], .alignment = size[i], .limit = size[i], .range_hi = size[i]};

            if (one(fd, NV01_MEMORY_LOCAL_USER, &m, bytes[k]) == NV_OK)
                held += m.size;
        }
    }
}

static void kinds(int fd)
{
    for (uint32_t location = 0; location < 4; location++) {
        for (uint32_t flag = 0; flag < 32; flag++) {
            struct rm_memory m = {
                .owner = OWNER,
                .size = 65536,
                .attr = location << RM_MEMORY_ATTR_LOCATION_SHIFT,
                .flags = 1u << flag,
            };

            if (one(fd, NV01_MEMORY_LOCAL_USER, &m, sizeof(m)) == NV_OK)
                held += 65536;
        }
    }
}

static void places(int fd)
{
    uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rm_alloc *across = (void *)(pages + PAGE - 16), *own = (void *)pages;
    uintptr_t at[] = {1,
                      PAGE,
                      UINTPTR_MAX,
                      UINTPTR_MAX - 127,
                      1ul << 47,
                      0xffff800000000000ul,
                      (uintptr_t)pages + PAGE - 8};

    munmap(pages + PAGE, PAGE);
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++)
        one(fd, NV01_MEMORY_LOCAL_USER, (void *)at[i], 128);
    /* The parameters are the call's own struct: what is written back lies where it came from. */
    *own = (struct rm_alloc){
        .root = client,
        .parent = DEVICE,
        .handle = handle++,
        .class_id = NV01_MEMORY_LOCAL_USER,
        .params = (uintptr_t)own,
        .params_size = 128,
    };
    answered += !ioctl(fd, RM_CMD(NV_ESC_RM_ALLOC, sizeof(*own)), own);
    answered += !ioctl(fd, RM_CMD(NV_ESC_RM_ALLOC, sizeof(*own)), across);
    answered += !ioctl(fd, RM_CMD(NV_ESC_RM_ALLOC, sizeof(*own)), NULL);
    answered += !ioctl(fd, RM_CMD(NV_ESC_RM_FREE, 16), (void *)1);
}

/* Every escape at every size that no program calls it with. */
static void structs(int fd)
{
    static uint8_t zero[16384];

    for (uint32_t nr = 0x20; nr < 0x60; nr++)
        for (uint32_t bytes = 0; bytes < 600; bytes += 4)
            ioctl(fd, RM_CMD(nr, bytes), zero);
    for (uint32_t nr = 200; nr < 220; nr++)
        for (uint32_t bytes = 0; bytes < 600; bytes += 4)
            ioctl(fd, RM_CMD(nr, bytes), zero);
}

int main(void)
{
    int fd = open_client(&client);

    amounts(fd);
    kinds(fd);
    places(fd);
    structs(fd);
    say("done %u held %llu", answered, (unsigned long long)held);
    hold();
}
