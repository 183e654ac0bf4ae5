/* Memory of the card that no allocation names: page tables, and what address spaces take. Then all that can
 * be had by name.
 *
 *   virtual N   N times a TiB of virtual memory, whose tables RM makes with it: two GiB each
 *   sparse N    N times 8 GiB of such that reads as zeros, and each time one at an address that cannot be,
 * which fails late spaces N    N address spaces dma         a mapping of a TiB in virtual memory of 64 KiB:
 * RM makes tables for the length before it looks
 *
 * Prints "made N held BYTES status S", S being the last answer to an allocation, and stands still; dma: N is
 * the errno. */
#include "../rm.h"

enum { SPACE = 0x500, VIRTUAL = 0x10000 };
static const uint64_t tib = 1ull << 40, gib = 1ull << 30;

static uint32_t client;
static int fd;

static int64_t vaspace(uint32_t handle)
{
    uint8_t params[64] = {0};

    return rm_alloc(fd, client, DEVICE, handle, FERMI_VASPACE_A, params, 0);
}

static int64_t virtual_memory(uint32_t handle, uint64_t bytes, uint32_t flags, uint64_t at)
{
    enum { FIXED_ADDRESS = 0x8000 };
    struct rm_memory m = {
        .owner = OWNER,
        .size = bytes,
        .offset = at,
        .flags = RM_MEMORY_FLAG_VIRTUAL | flags | (at ? FIXED_ADDRESS : 0),
        .vaspace = SPACE,
    };

    return rm_alloc(fd, client, DEVICE, handle, NV50_MEMORY_VIRTUAL, &m, 0);
}

static int map_a_tebibyte(void)
{
    /* NVOS46 up to its flags; 64 bytes from 580.65 on. */
    struct {
        uint32_t client, device, dma, memory;
        uint64_t offset, length;
        uint8_t rest[32];
    } map = {client, DEVICE, VIRTUAL, FIRST_MEMORY, 0, tib, {0}};

    virtual_memory(VIRTUAL, 65536, 0, 0);
    rm_memory(fd, client, FIRST_MEMORY, 65536);
    /* The status is 8 bytes before the end. */
    if (!ioctl(fd, RM_CMD(NV_ESC_RM_MAP_MEMORY_DMA, 56), &map))
        return map.rest[16];
    return ioctl(fd, RM_CMD(NV_ESC_RM_MAP_MEMORY_DMA, 64), &map) ? errno : map.rest[24];
}

static uint64_t take_all(int64_t *status)
{
    uint32_t handle = FIRST_MEMORY + 1;
    uint64_t held = 0;

    for (uint64_t bytes = 256 * MIB; bytes >= 65536; bytes /= 2)
        while ((*status = rm_memory(fd, client, handle++, bytes)) == NV_OK)
            held += bytes;
    return held;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int n = argc > 2 ? atoi(argv[2]) : 0, made = 0;
    int64_t status;
    uint64_t held;

    fd = open_client(&client);
    must(vaspace(SPACE) == NV_OK, "address space");
    if (!strcmp(what, "dma"))
        made = map_a_tebibyte();
    for (int i = 0; i < n; i++) {
        uint32_t handle = VIRTUAL + 1 + (uint32_t)i;

        if (!strcmp(what, "virtual")) {
            made += virtual_memory(handle, tib, 0, 0) == NV_OK;
        } else if (!strcmp(what, "sparse")) {
            made += virtual_memory(handle, 8 * gib, RM_MEMORY_FLAG_SPARSE, 0) == NV_OK;
            virtual_memory(handle + 0x10000, 8 * gib, RM_MEMORY_FLAG_SPARSE, UINT64_MAX - 8 * gib + 1);
        } else if (!strcmp(what, "spaces")) {
            made += vaspace(handle) == NV_OK;
        }
    }
    held = take_all(&status);
    say("made %d held %llu status %#llx", made, (unsigned long long)held, (unsigned long long)status);
    hold();
}
