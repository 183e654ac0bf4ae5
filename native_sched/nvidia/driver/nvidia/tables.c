/* Read in 535.86.05, 550.54.14, 570.86.15, 580.65.06 and 595.45.04 of NVIDIA's open-gpu-kernel-modules. */
#include "tables.h"
#include "native_sched/nvidia/rm/channel.h"

/* Page tables and instance blocks come from pools that take chunks of this size (poolConfig in pool_alloc.c:
 * page sizes of 4 KiB). */
enum { CHUNK_BYTES = 64 << 10, PAGE_BYTES = 4 << 10 };

/* A group's channels have their instance blocks from a pool of the group's, which keeps what they leave until
 * the last of them has ended, and one chunk ahead (kchannelConstruct() in kernel_channel.c, poolReserve() in
 * poolalloc.c). A block is a page and takes a whole chunk, since it is to be contiguous
 * (ctxBufPoolGetSizeAndPageSize() in ctx_buf_pool.c). A group has as many at the most
 * (kfifoGetMaxChannelGroupSize() in kernel_fifo_gv100.c). */
enum { GROUP_CHANNELS = 128, CHANNELS_BYTES = (GROUP_CHANNELS + 1) * CHUNK_BYTES };

/* A video engine is a falcon, whose context is not larger than its memory for instructions and for data
 * (kflcnAllocContext_IMPL() in kernel_falcon.c): each 4095 blocks of 256 bytes at the most, by the twelve
 * bits that tell how many (NV_PFALCON_FALCON_HWCFG3 in dev_falcon_v4.h). */
enum { FALCON_BYTES = 2 << 20 };

/* An object of 2D or 3D has the contexts' buffers mapped into its channel's address space, and with them
 * those that all contexts of the card share (kgrctxMapCtxBuffers() in kernel_graphics_context.c). Their sizes
 * are the firmware's; an H100's context is 66 MiB. */
static const uint64_t graphics_mapped_bytes = 512ull << 20;

/* The formats of Pascal to Blackwell, from the leaves to the root (VER2 and VER3): a table of 4 KiB for 2 MiB
 * in pages of 4 KiB, one of 256 bytes for as much in pages of 64 KiB, and the directories above, each with
 * what an entry covers and how large it is. */
enum { TABLE_SHIFT = 21, BIG_TABLE_BYTES = 256, DIRECTORIES = 5 };
static const struct {
    uint32_t entry_shift, entry_bytes;
} directory[DIRECTORIES] = {{21, 16}, {29, 8}, {38, 8}, {47, 8}, {56, 8}};

/* Virtual memory that is to read as zeros before anything is mapped has its tables made with it. What RM sets
 * aside for that stays in a pool of the card's after the object, and after a call that fails, until some
 * table is freed (rmMemPoolFree() in pool_alloc.c): a reservation adds to it only what it lacks, so that the
 * largest is all that can lie there. */
static const uint64_t sparse_max_bytes = 8ull << 30;

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* One more than are needed, as RM has it (kgmmuGetSizeOfPageTables() and kgmmuGetSizeOfPageDirs() in
 * kern_gmmu.c). */
static uint64_t count(uint64_t limit, uint32_t shift)
{
    return (limit >> shift) + ((limit & ((1ull << shift) - 1)) != 0) + 1;
}

uint64_t nvidia_reserved_tables(uint64_t bytes)
{
    uint64_t limit = bytes ? bytes - 1 : 0;
    uint64_t sum = count(limit, TABLE_SHIFT) * (PAGE_BYTES + BIG_TABLE_BYTES);

    for (int i = 0; i < DIRECTORIES; i++)
        sum += round_up(count(limit, directory[i].entry_shift) * directory[i].entry_bytes, PAGE_BYTES);
    return round_up(sum, CHUNK_BYTES);
}

/* Rounds up to the largest page that the attributes ask for (gvaspaceApplyDefaultAlignment() in
 * gpu_vaspace.c). */
static uint64_t aligned(const struct rm_memory *mem)
{
    static const uint32_t huge_shift[] = {21, 21, 29, 38};
    uint32_t shift = huge_shift[mem->attr2 >> RM_MEMORY_ATTR2_HUGE_SHIFT & RM_MEMORY_ATTR2_HUGE_MASK];

    return round_up(mem->size, 1ull << shift);
}

/* Virtual memory that names no address space is in the device's own, which RM makes when it is first needed
 * (vaspaceGetByHandleOrDeviceDefault() in vaspace.c). */
static uint64_t virtual_bytes(const struct rm_memory *mem)
{
    uint64_t own_space = mem->vaspace ? 0 : CHUNK_BYTES;

    if (!(mem->flags & RM_MEMORY_FLAG_SPARSE))
        return own_space;
    if (mem->size > sparse_max_bytes || aligned(mem) > sparse_max_bytes)
        return UINT64_MAX;
    return own_space + nvidia_reserved_tables(aligned(mem));
}

uint64_t nvidia_own_bytes(uint32_t class_id, const void *params)
{
    switch (class_id) {
    case NV50_MEMORY_VIRTUAL:
        return virtual_bytes(params);
    case FERMI_VASPACE_A:
        /* Its root and the directories of the part that GSP's firmware manages, 4 KiB each: five at the most
         * (gvaspaceReserveSplitVaSpace() in gpu_vaspace.c). */
        return CHUNK_BYTES;
    case KEPLER_CHANNEL_GROUP_A:
        return CHANNELS_BYTES + (rm_is_video_engine(((const struct rm_channel_group *)params)->engine_type)
                                     ? FALCON_BYTES
                                     : 0);
    default:
        return rm_kind_of(class_id) == RM_KIND_GRAPHICS ? nvidia_reserved_tables(graphics_mapped_bytes) : 0;
    }
}
