#include "engines.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint32_t engines_memory(const struct engines *engines, uint64_t bytes, uint32_t *handle, uint8_t **map)
{
    struct rm_memory params = {
        .owner = engines->rm->client,
        .size = bytes,
        .attr = RM_MEMORY_LOCATION_HOST << RM_MEMORY_ATTR_LOCATION_SHIFT,
    };
    struct rmc_mapping mapping = {.bytes = bytes, .host = true};
    uint32_t device = engines->card->device;
    uint32_t status = rmc_alloc(engines->rm, device, handle, NV01_MEMORY_SYSTEM, &params, sizeof params);
    void *at = MAP_FAILED;

    if (status)
        return status;
    status = rmc_map(engines->rm, engines->card, device, *handle, &mapping);
    if (!status) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.fd, (off_t)mapping.offset);
        close(mapping.fd);
        if (at == MAP_FAILED)
            status = RMC_STATUS_IOCTL_FAILED;
    }
    if (status) {
        rmc_free(engines->rm, *handle);
        *handle = 0;
        return status;
    }
    *map = at;
    return NV_OK;
}

uint32_t engines_memory_at(const struct engines *engines, uint64_t bytes, uint64_t from, uint64_t kept,
                           uint32_t *handle, uint8_t *map)
{
    uint32_t status;
    uint8_t *at;

    *handle = 0;
    status = engines_memory(engines, bytes, handle, &at);
    if (status)
        return status;
    memcpy(at + from, map + from, kept);
    if (mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, map) != MAP_FAILED)
        return NV_OK;
    munmap(at, bytes);
    return NV_ERR_NO_MEMORY;
}
