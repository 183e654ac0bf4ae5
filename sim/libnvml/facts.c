/* What a simulated card is always: no display, the default compute mode, no MIG. */
#include "nvml.h"
#include <string.h>

enum { COMPUTE_MODE_DEFAULT = 0, FEATURE_DISABLED = 0, BRAND_TESLA = 2, BRAND_NVIDIA = 14 };
enum { ARCH_VOLTA = 5, ARCH_TURING = 6, ARCH_AMPERE = 7, ARCH_ADA = 8, ARCH_HOPPER = 9, ARCH_UNKNOWN = -1 };

static nvmlReturn_t answer(nvmlDevice_t device, unsigned int *out, unsigned int value)
{
    ENTER(entry, enter_device(device));

    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = value;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    return answer(device, mode, COMPUTE_MODE_DEFAULT);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *display)
{
    return answer(device, display, FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active)
{
    return answer(device, active, FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    return answer(device, count, 0);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    return answer(device, is_mig, 0);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    ENTER(entry, enter_device(device));

    if (!brand)
        return NVML_ERROR_INVALID_ARGUMENT;
    *brand = strncmp(entry.card->name, "Tesla", strlen("Tesla")) ? BRAND_NVIDIA : BRAND_TESLA;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
    ENTER(entry, enter_device(device));

    if (!bits)
        return NVML_ERROR_INVALID_ARGUMENT;
    *bits = entry.card->model->memory_bus_bits;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    ENTER(entry, enter_device(device));

    if (!architecture)
        return NVML_ERROR_INVALID_ARGUMENT;
    switch (entry.card->arch.architecture) {
    case 0x140:
        *architecture = ARCH_VOLTA;
        break;
    case 0x160:
        *architecture = ARCH_TURING;
        break;
    case 0x170:
        *architecture = ARCH_AMPERE;
        break;
    case 0x180:
        *architecture = ARCH_HOPPER;
        break;
    case 0x190:
        *architecture = ARCH_ADA;
        break;
    default:
        *architecture = (unsigned int)ARCH_UNKNOWN;
    }
    return NVML_SUCCESS;
}
