#include "nvml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER(entry, enter());

    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = entry.rm->card_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER(entry, enter());

    if (!device || index >= entry.rm->card_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = handle_of(&entry, index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    ENTER(entry, enter());

    if (!device || !uuid)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < entry.rm->card_count; i++) {
        if (strcmp(entry.rm->cards[i].uuid, uuid))
            continue;
        *device = handle_of(&entry, i);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

/* Domain, bus and slot of "[domain:]bus:slot[.function]", all hexadecimal. */
static bool parse_bus_id(const char *text, unsigned int *domain, unsigned int *bus, unsigned int *slot)
{
    *domain = 0;
    return sscanf(text, "%x:%x:%x", domain, bus, slot) == 3 ||
           (*domain = 0, sscanf(text, "%x:%x", bus, slot) == 2);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain, bus, slot;
    ENTER(entry, enter());

    if (!device || !bus_id || !parse_bus_id(bus_id, &domain, &bus, &slot))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < entry.rm->card_count; i++) {
        const struct rm_card_info *info = &entry.rm->cards[i].info;

        if (info->pci_domain != domain || info->pci_bus != bus || info->pci_slot != slot)
            continue;
        *device = handle_of(&entry, i);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    ENTRY entry = enter_device(device);

    return entry.error ? entry.error : copy_text(name, length, entry.card->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    ENTRY entry = enter_device(device);

    return entry.error ? entry.error : copy_text(uuid, length, entry.card->uuid);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER(entry, enter_device(device));

    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = index_of(&entry);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    ENTER(entry, enter_device(device));

    if (!minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *minor = entry.card->info.minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTRY entry = enter_device(device);
    const struct rmc_card *card = entry.card;

    if (entry.error)
        return entry.error;
    if (!pci)
        return NVML_ERROR_INVALID_ARGUMENT;
    *pci = (nvmlPciInfo_t){
        .domain = card->info.pci_domain,
        .bus = card->info.pci_bus,
        .device = card->info.pci_slot,
        .pciDeviceId = card->pci.device_id,
        .pciSubSystemId = card->pci.subsystem_id,
    };
    snprintf(pci->busId, sizeof pci->busId, "%s", card->bus_id);
    /* The older form has four digits of domain: the eight without their first four. */
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%.15s", card->bus_id + 4);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t info;
    nvmlReturn_t result = pci ? nvmlDeviceGetPciInfo_v3(device, &info) : NVML_ERROR_INVALID_ARGUMENT;

    if (result)
        return result;
    *pci = (nvmlPciInfo_v2_t){
        .domain = info.domain,
        .bus = info.bus,
        .device = info.device,
        .pciDeviceId = info.pciDeviceId,
        .pciSubSystemId = info.pciSubSystemId,
    };
    memcpy(pci->busId, info.busIdLegacy, sizeof pci->busId);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER(entry, enter_device(device));

    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = (int)entry.card->model->cc_major;
    *minor = (int)entry.card->model->cc_minor;
    return NVML_SUCCESS;
}
