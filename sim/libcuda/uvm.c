#include "../abi/uvm_sizes.h"
#include "ranges.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct register_gpu {
    uint8_t gpu[UVM_UUID_BYTES];
    uint32_t numa[2];
    int32_t ctl_fd; /* of a MIG instance's client, -1: it is a card as a whole */
    uint32_t client, instance, status;
};
struct unregister_gpu_vaspace {
    uint8_t gpu[UVM_UUID_BYTES];
    uint32_t status;
};

static int file = -1;
/* By card: whose address space is registered. NULL: none. */
static CUcontext joined[RM_MAX_CARDS];

int uvm_file(void)
{
    return file;
}

void uvm_forget(void)
{
    if (file >= 0)
        close(file);
    file = -1;
    memset(joined, 0, sizeof joined);
}

static uint32_t file_open(const struct rmc *rm)
{
    struct uvm_initialize uvm_initialize = {.flags = 0};
    uint32_t status;

    file = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
    status = rmc_uvm(rm, file, UVM_INITIALIZE, &uvm_initialize);
    for (uint32_t i = 0; i < rm->card_count && !status; i++) {
        struct register_gpu gpu = {.ctl_fd = -1};

        rmc_uuid(&rm->cards[i], gpu.gpu);
        status = rmc_uvm(rm, file, UVM_REGISTER_GPU, &gpu);
    }
    if (status)
        uvm_forget();
    return status;
}

uint32_t uvm_join(const struct rmc *rm)
{
    uint32_t status = file < 0 ? file_open(rm) : NV_OK;

    for (uint32_t i = 0; i < rm->card_count && !status; i++) {
        struct uvm_register_gpu_vaspace vaspace = {.ctl_fd = rm->ctl_fd, .client = rm->client};
        CUcontext context = joined[i] ? NULL : context_on(&rm->cards[i]);

        if (!context)
            continue;
        rmc_uuid(&rm->cards[i], vaspace.gpu);
        vaspace.vaspace = context->engines->vaspace;
        status = rmc_uvm(rm, file, UVM_REGISTER_GPU_VASPACE, &vaspace);
        if (!status)
            joined[i] = context;
    }
    return status;
}

bool uvm_leave(const struct rmc *rm, CUcontext context)
{
    struct unregister_gpu_vaspace vaspace;
    uint32_t i = (uint32_t)(context->device->card - rm->cards);

    if (joined[i] != context)
        return false;
    joined[i] = NULL;
    rmc_uuid(context->device->card, vaspace.gpu);
    rmc_uvm(rm, file, UVM_UNREGISTER_GPU_VASPACE, &vaspace);
    return true;
}
