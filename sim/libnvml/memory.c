#include "nvml.h"

enum { KIB = 1024 };

/* Video memory in bytes, by enum rm_fb_index. */
static nvmlReturn_t read_bytes(const struct entry *entry, const uint32_t *indices, unsigned long long *bytes,
                               uint32_t count)
{
    uint32_t kib[4] = {0};
    uint32_t status = rmc_memory_kib(entry->rm, entry->card, indices, kib, count);

    for (uint32_t i = 0; i < count; i++)
        bytes[i] = (unsigned long long)kib[i] * KIB;
    return from_rm(status);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    static const uint32_t indices[] = {RM_FB_TOTAL_RAM_SIZE, RM_FB_HEAP_FREE};
    unsigned long long bytes[2];
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = read_bytes(&entry, indices, bytes, 2);
    if (!result)
        *memory = (nvmlMemory_t){.total = bytes[0], .free = bytes[1], .used = bytes[0] - bytes[1]};
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    static const uint32_t indices[] = {RM_FB_TOTAL_RAM_SIZE, RM_FB_HEAP_SIZE, RM_FB_HEAP_FREE};
    unsigned long long bytes[3];
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = read_bytes(&entry, indices, bytes, 3);
    if (result)
        return result;
    memory->total = bytes[0];
    memory->reserved = bytes[0] - bytes[1];
    memory->free = bytes[2];
    memory->used = bytes[1] - bytes[2];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    static const uint32_t indices[] = {RM_FB_BAR1_SIZE, RM_FB_BAR1_AVAIL};
    unsigned long long bytes[2];
    nvmlReturn_t result;
    ENTER(entry, enter_device(device));

    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = read_bytes(&entry, indices, bytes, 2);
    if (!result)
        *memory = (nvmlBAR1Memory_t){
            .bar1Total = bytes[0], .bar1Free = bytes[1], .bar1Used = bytes[0] - bytes[1]};
    return result;
}
