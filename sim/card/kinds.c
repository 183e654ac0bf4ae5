#include "rm.h"

bool class_has_names(uint32_t class_id)
{
    return class_id == NV01_MEMORY_LOCAL_USER || class_id == NV01_MEMORY_SYSTEM ||
           class_id == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
}

static bool class_has_space(uint32_t class_id)
{
    return class_id == FERMI_VASPACE_A || class_id == NV01_MEMORY_VIRTUAL || class_id == NV50_MEMORY_VIRTUAL;
}

/* Of which the driver has no second names. */
bool class_is_unique(uint32_t class_id)
{
    return class_id == NV01_ROOT_CLIENT || class_id == NV01_DEVICE_0 || class_id == NV20_SUBDEVICE_0;
}

bool class_is_channel(uint32_t class_id)
{
    return rm_kind_of(class_id) == RM_KIND_CHANNEL;
}

bool class_is_usermode(uint32_t class_id)
{
    return class_id == VOLTA_USERMODE_A || class_id == TURING_USERMODE_A || class_id == AMPERE_USERMODE_A ||
           class_id == HOPPER_USERMODE_A || class_id == BLACKWELL_USERMODE_A;
}

bool class_is_shared(uint32_t class_id)
{
    return class_has_names(class_id) || class_has_space(class_id) || class_id == KEPLER_CHANNEL_GROUP_A;
}
