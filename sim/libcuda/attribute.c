#include "cuda.h"

enum { ATTRIBUTES = 163, KHZ_PER_MHZ = 1000, BYTES_PER_KIB = 1024 };

/* Numbers of the public CUdevice_attribute list. What is not here and not of the model is 0: a feature that
 * the simulated card or this library does not have. */
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
    {19, 1},          /* CAN_MAP_HOST_MEMORY */
    {21, 131072},     /* MAXIMUM_TEXTURE1D_WIDTH */
    {22, 131072},     /* MAXIMUM_TEXTURE2D_WIDTH */
    {23, 65536},      /* MAXIMUM_TEXTURE2D_HEIGHT */
    {24, 16384},      /* MAXIMUM_TEXTURE3D_WIDTH */
    {25, 16384},      /* MAXIMUM_TEXTURE3D_HEIGHT */
    {26, 16384},      /* MAXIMUM_TEXTURE3D_DEPTH */
    {27, 32768},      /* MAXIMUM_TEXTURE2D_LAYERED_WIDTH */
    {28, 32768},      /* MAXIMUM_TEXTURE2D_LAYERED_HEIGHT */
    {29, 2048},       /* MAXIMUM_TEXTURE2D_LAYERED_LAYERS */
    {30, 512},        /* SURFACE_ALIGNMENT */
    {31, 1},          /* CONCURRENT_KERNELS */
    {32, 1},          /* ECC_ENABLED */
    {40, 3},          /* ASYNC_ENGINE_COUNT */
    {41, 1},          /* UNIFIED_ADDRESSING */
    {42, 32768},      /* MAXIMUM_TEXTURE1D_LAYERED_WIDTH */
    {43, 2048},       /* MAXIMUM_TEXTURE1D_LAYERED_LAYERS */
    {45, 32768},      /* MAXIMUM_TEXTURE2D_GATHER_WIDTH */
    {46, 32768},      /* MAXIMUM_TEXTURE2D_GATHER_HEIGHT */
    {47, 8192},       /* MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE */
    {48, 8192},       /* MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE */
    {49, 32768},      /* MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE */
    {51, 32},         /* TEXTURE_PITCH_ALIGNMENT */
    {52, 32768},      /* MAXIMUM_TEXTURECUBEMAP_WIDTH */
    {53, 32768},      /* MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH */
    {54, 2046},       /* MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS */
    {55, 32768},      /* MAXIMUM_SURFACE1D_WIDTH */
    {56, 131072},     /* MAXIMUM_SURFACE2D_WIDTH */
    {57, 65536},      /* MAXIMUM_SURFACE2D_HEIGHT */
    {58, 16384},      /* MAXIMUM_SURFACE3D_WIDTH */
    {59, 16384},      /* MAXIMUM_SURFACE3D_HEIGHT */
    {60, 16384},      /* MAXIMUM_SURFACE3D_DEPTH */
    {61, 32768},      /* MAXIMUM_SURFACE1D_LAYERED_WIDTH */
    {62, 2048},       /* MAXIMUM_SURFACE1D_LAYERED_LAYERS */
    {63, 32768},      /* MAXIMUM_SURFACE2D_LAYERED_WIDTH */
    {64, 32768},      /* MAXIMUM_SURFACE2D_LAYERED_HEIGHT */
    {65, 2048},       /* MAXIMUM_SURFACE2D_LAYERED_LAYERS */
    {66, 32768},      /* MAXIMUM_SURFACECUBEMAP_WIDTH */
    {67, 32768},      /* MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH */
    {68, 2046},       /* MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS */
    {69, 1 << 28},    /* MAXIMUM_TEXTURE1D_LINEAR_WIDTH */
    {70, 131072},     /* MAXIMUM_TEXTURE2D_LINEAR_WIDTH */
    {71, 65000},      /* MAXIMUM_TEXTURE2D_LINEAR_HEIGHT */
    {72, 2097120},    /* MAXIMUM_TEXTURE2D_LINEAR_PITCH */
    {73, 32768},      /* MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH */
    {74, 32768},      /* MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT */
    {77, 32768},      /* MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH */
    {78, 1},          /* STREAM_PRIORITIES_SUPPORTED */
    {79, 1},          /* GLOBAL_L1_CACHE_SUPPORTED */
    {80, 1},          /* LOCAL_L1_CACHE_SUPPORTED */
    {82, 65536},      /* MAX_REGISTERS_PER_MULTIPROCESSOR */
    {83, 1},          /* MANAGED_MEMORY */
    {89, 1},          /* CONCURRENT_MANAGED_ACCESS */
    {90, 1},          /* COMPUTE_PREEMPTION_SUPPORTED */
    {91, 1},          /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
    {95, 1},          /* COOPERATIVE_LAUNCH */
    {99, 1},          /* HOST_REGISTER_SUPPORTED */
    {102, 1},         /* VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED */
    {103, 1},         /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
    {113, 1},         /* READ_ONLY_HOST_REGISTER_SUPPORTED */
    {115, 1},         /* MEMORY_POOLS_SUPPORTED */
    {131, -1},        /* NUMA_ID: its memory is no node of the host's */
};

static uint32_t capability(const struct rmc_card *card)
{
    return card->model->cc_major * 10 + card->model->cc_minor;
}

/* By the table of the CUDA programming guide: half a data-centre part's on a part for graphics. */
uint32_t card_blocks_per_sm(const struct rmc_card *card)
{
    enum { OF_86 = 16, OF_89 = 24, OF_OTHERS = 32 };

    return capability(card) == 86 ? OF_86 : capability(card) == 89 ? OF_89 : OF_OTHERS;
}

uint32_t card_reserved_shared_bytes(const struct rmc_card *card)
{
    enum { FROM_AMPERE_ON = 1024 };

    return card->model->cc_major >= 8 ? FROM_AMPERE_ON : 0;
}

static int pci_pair(uint16_t id, uint16_t vendor)
{
    return (int)((uint32_t)id << 16 | vendor);
}

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
    case 85: /* MULTI_GPU_BOARD_GROUP_ID */
        return ordinal_of_card(card);
    case 87: /* SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO */
        return card->model->cc_minor ? 32 : 2;
    case 97: /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
        return (int)model->shared_per_block_optin_bytes;
    case 106: /* MAX_BLOCKS_PER_MULTIPROCESSOR */
        return (int)card_blocks_per_sm(card);
    case 111: /* RESERVED_SHARED_MEMORY_PER_BLOCK */
        return (int)card_reserved_shared_bytes(card);
    case 139: /* GPU_PCI_DEVICE_ID */
        return pci_pair(model->pci_device, SIM_PCI_VENDOR);
    case 140: /* GPU_PCI_SUBSYSTEM_ID */
        return pci_pair(model->pci_subsystem, SIM_PCI_VENDOR);
    default:
        return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTER(entry, enter_device(device));

    if (!value || attribute <= 0 || attribute >= ATTRIBUTES)
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
