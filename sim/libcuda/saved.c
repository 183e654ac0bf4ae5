#include "checkpoint.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_BYTES = 16 << 20 }; /* between two looks at the caller */

struct saved {
    uint8_t *at; /* the extents, one behind the other */
    size_t bytes, count;
    struct extent {
        uint64_t from, bytes;
    } extents[];
};

/* Of the file from `from` on; 0 bytes: there is no more. */
static struct extent next_extent(int fd, uint64_t from, uint64_t end)
{
    struct extent extent = {0};
    off_t data = lseek(fd, (off_t)from, SEEK_DATA), hole;

    if (data < 0 || (uint64_t)data >= end)
        return extent;
    hole = lseek(fd, data, SEEK_HOLE);
    extent.from = (uint64_t)data;
    extent.bytes = (hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole) - extent.from;
    return extent;
}

static struct saved *measure(int fd, uint64_t first, uint64_t end)
{
    struct saved *saved = calloc(1, sizeof *saved);

    while (saved) {
        struct extent extent = next_extent(fd, first, end);
        struct saved *grown;

        if (!extent.bytes)
            break;
        grown = realloc(saved, sizeof *saved + (saved->count + 1) * sizeof extent);
        if (!grown) {
            free(saved);
            return NULL;
        }
        saved = grown;
        saved->extents[saved->count++] = extent;
        saved->bytes += extent.bytes;
        first = extent.from + extent.bytes;
    }
    return saved;
}

typedef ssize_t (*transfer)(int fd, uint8_t *bytes, size_t count, off_t at);

static ssize_t take(int fd, uint8_t *bytes, size_t count, off_t at)
{
    return pread(fd, bytes, count, at);
}

static ssize_t put(int fd, uint8_t *bytes, size_t count, off_t at)
{
    return pwrite(fd, bytes, count, at);
}

static CUresult move_all(int fd, const struct saved *saved, transfer transfer)
{
    uint8_t *at = saved->at;

    for (size_t i = 0; i < saved->count; i++) {
        const struct extent *extent = &saved->extents[i];

        for (uint64_t done = 0; done < extent->bytes;) {
            uint64_t left = extent->bytes - done;
            ssize_t moved = transfer(fd, at, left < PIECE_BYTES ? left : PIECE_BYTES,
                                     (off_t)(extent->from + done));

            if (moved <= 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
            at += moved;
            done += (uint64_t)moved;
            if (!checkpoint_linger())
                return CUDA_ERROR_NOT_READY;
        }
    }
    return CUDA_SUCCESS;
}

/* A child of the process has no use for it. */
static CUresult take_all(int fd, struct saved *saved)
{
    void *at;

    if (!saved->bytes)
        return CUDA_SUCCESS;
    at = mmap(NULL, saved->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    madvise(at, saved->bytes, MADV_DONTFORK);
    saved->at = at;
    return move_all(fd, saved, take);
}

/* Of a card without contents there is no file. */
static CUresult open_object(const struct rmc *rm, const struct rmc_card *card, uint32_t handle,
                            struct rmc_mapping *mapping)
{
    uint32_t status = rmc_map(rm, card, card->device, handle, mapping);

    if (status == NV_ERR_NOT_SUPPORTED) {
        mapping->fd = -1;
        return CUDA_SUCCESS;
    }
    return from_rm(status);
}

CUresult saved_take(const struct rmc *rm, const struct rmc_card *card, uint32_t handle, uint64_t bytes,
                    struct saved **out)
{
    struct rmc_mapping mapping = {.bytes = bytes};
    CUresult result = open_object(rm, card, handle, &mapping);
    struct saved *saved;

    *out = NULL;
    if (result || mapping.fd < 0)
        return result;
    saved = measure(mapping.fd, mapping.offset, mapping.offset + bytes);
    result = saved ? take_all(mapping.fd, saved) : CUDA_ERROR_OUT_OF_MEMORY;
    close(mapping.fd);
    if (result)
        saved_free(saved);
    else
        *out = saved;
    return result;
}

CUresult saved_put(const struct rmc *rm, const struct rmc_card *card, uint32_t handle, uint64_t bytes,
                   const struct saved *saved)
{
    struct rmc_mapping mapping = {.bytes = bytes};
    CUresult result;

    if (!saved || !saved->count)
        return CUDA_SUCCESS;
    result = open_object(rm, card, handle, &mapping);
    if (result || mapping.fd < 0)
        return result;
    result = move_all(mapping.fd, saved, put);
    close(mapping.fd);
    return result;
}

void saved_free(struct saved *saved)
{
    if (saved && saved->at)
        munmap(saved->at, saved->bytes);
    free(saved);
}
