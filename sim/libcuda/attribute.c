#include "cuda.h"

enum { ATTRIBUTE_LIMIT = 256, KHZ_PER_MHZ = 1000, BYTES_PER_KIB = 1024 };

/* Numbers of the public CUdevice_attribute list. */
static const struct constant {
    int attribute, value;
} constants[] = {
    {1, 1024},        /* MAX_THREADS_PER_BLOCK */
    {2, 1024},        /* MAX_BLOCK_DIM_X */
    {3, 1024},        /* MAX_BLOCK_DIM_Y */
    {4, 64},          /* MAX_BLOCK_DIM_Z */
    {5, 0x7fffffff},  /* MAX_GRID_DIM_X */
    {6, 65535},       /* MAX_GRID_DIM_Y */
    {7, 65535},       /* MAX_GRID_DIM_Z */
    {8, 49152},       /* MAX_SHARED_MEMORY_PER_BLOCK */
    {9, 65536},       /* TOTAL_CONSTANT_MEMORY */
    {10, 32},         /* WARP_SIZE */
    {11, 0x7fffffff}, /* MAX_PITCH */
    {12, 65536},      /* MAX_REGISTERS_PER_BLOCK */
    {14, 512},        /* TEXTURE_ALIGNMENT */
    {15, 1},          /* GPU_OVERLAP */
    {31, 1},          /* CONCURRENT_KERNELS */
    {32, 1},          /* ECC_ENABLED */
    {40, 3},          /* ASYNC_ENGINE_COUNT */
    {41, 1},          /* UNIFIED_ADDRESSING */
    {78, 1},          /* STREAM_PRIORITIES_SUPPORTED */
    {79, 1},          /* GLOBAL_L1_CACHE_SUPPORTED */
    {80, 1},          /* LOCAL_L1_CACHE_SUPPORTED */
    {82, 65536},      /* MAX_REGISTERS_PER_MULTIPROCESSOR */
    {90, 1},          /* COMPUTE_PREEMPTION_SUPPORTED */
};

static int model_value(const struct rmc_card *card, int attribute)
{
    const struct card_profile *model = card->model;

    switch (attribute) {
    case 13: /* CLOCK_RATE */
        return (int)model->sm_clock_mhz * KHZ_PER_MHZ;
    case 16: /* MULTIPROCESSOR_COUNT */
        return (int)model->sm_count;
    case 33: /* PCI_BUS_ID */
        return card->info.pci_bus;
    case 34: /* PCI_DEVICE_ID */
        return card->info.pci_slot;
    case 36: /* MEMORY_CLOCK_RATE */
        return (int)model->memory_clock_mhz * KHZ_PER_MHZ;
    case 37: /* GLOBAL_MEMORY_BUS_WIDTH */
        return (int)model->memory_bus_bits;
    case 38: /* L2_CACHE_SIZE */
        return (int)model->l2_kib * BYTES_PER_KIB;
    case 39: /* MAX_THREADS_PER_MULTIPROCESSOR */
        return (int)model->threads_per_sm;
    case 50: /* PCI_DOMAIN_ID */
        return (int)card->info.pci_domain;
    case 75: /* COMPUTE_CAPABILITY_MAJOR */
        return (int)model->cc_major;
    case 76: /* COMPUTE_CAPABILITY_MINOR */
        return (int)model->cc_minor;
    case 81: /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
        return (int)model->shared_per_sm_bytes;
    case 97: /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
        return (int)model->shared_per_block_optin_bytes;
    default:
        return 0; /* a feature the simulated card does not have */
    }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTRY entry = enter_device(device);

    if (entry.error)
        return entry.error;
    if (!value || attribute <= 0 || attribute >= ATTRIBUTE_LIMIT)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (constants[i].attribute != attribute)
            continue;
        *value = constants[i].value;
        return CUDA_SUCCESS;
    }
    *value = model_value(entry.device->card, attribute);
    return CUDA_SUCCESS;
}
