#include "table.h"
#include "../../../native_sched/nvidia/rm/rm_abi.h"
#include "../facts/control_names.h"
#include "../state/faults.h"
#include <string.h>

/* Real: the driver itself fixes the answer, or a register of the card that is emulated does. */
#define REAL    false
#define MADE_UP true

static uint32_t unchanged(struct asked *asked)
{
    (void)asked;
    return 0;
}

static uint32_t zeros(struct asked *asked)
{
    answer_zero(asked);
    return 0;
}

static uint32_t fault_buffer(struct asked *asked)
{
    faults_register(asked->card, asked->params, asked->bytes);
    return 0;
}

static uint32_t no_fault_buffer(struct asked *asked)
{
    faults_unregister(asked->card);
    return 0;
}

static const struct answer controls[] = {
    {0x20800a9b, fault_buffer, REAL, "faults are written where the driver says, as clc369.h has them", NULL},
    {0x20800a9c, no_fault_buffer, REAL, "no fault is written from then on", NULL},
    {0x801813, unchanged, REAL, "the engines use that directory", NULL},
    {0x20800a36, answer_chip, REAL, "PCI ids as configuration space has them; register bases of dev_vm.h",
     NULL},
    {0x20800a40, answer_devices, MADE_UP, "one graphics and three copy engines", NULL},
    {0x20801112, answer_fifo_devices, MADE_UP, "one graphics and three copy engines", NULL},
    {0x20800a5c, answer_interrupts, MADE_UP, "vectors of our own choice", NULL},
    {0x20800a1c, answer_memory_system, MADE_UP, "caches as data sheets tell them", NULL},
    {0x20800a59, answer_gmmu, MADE_UP, "sizes of fault buffers", NULL},
    {NV2080_CTRL_CMD_GPU_GET_GID_INFO, answer_gid, MADE_UP, "a UUID of our own", NULL},
    {0x20800af3, answer_trust, MADE_UP, "BAR1 and PCIe are trusted: no confidential computing", NULL},
    {0x20800ab8, zeros, MADE_UP, "the bus carries what a peer reads and writes (NV0000_P2P_CAPS_STATUS_OK)",
     NULL},
    {0x20800aac, answer_bif, MADE_UP, "PCIe of the fourth generation", NULL},
    {0x20800a61, answer_channels, MADE_UP, "2048 for each runlist", NULL},
    {NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO, answer_bars, REAL,
     "sizes of the BARs, as configuration space has them", NULL},
    {0x20802a02, answer_ce_mask, MADE_UP, "a physical engine for each logical one", NULL},
    {0x20802a07, answer_ce_caps, MADE_UP, "as ctrl2080ce.h names them", NULL},
    {0x20802a08, answer_method_buffer, MADE_UP, "16 KiB", NULL},
    {0x20802a09, answer_hub_mask, MADE_UP, "three engines on the framebuffer's hub", NULL},
    {0x20800a2a, answer_gr_info, MADE_UP, "shaders as data sheets tell them; the rest zeros", NULL},
    {0x20800a26, answer_gr_masks, MADE_UP, "no part of it is cut off", NULL},
    {0x20800a32, answer_gr_buffers, MADE_UP, "128 KiB for each of a context's buffers", NULL},
};

const struct answer answer_scheduled = {0, unchanged, MADE_UP,
                                        "done by the engines as NVIDIA's comments promise", NULL};
static const struct answer got = {0, zeros, MADE_UP, "zeros", NULL};
static const struct answer unknown = {0, unchanged, MADE_UP, "NV_OK, and nothing is done",
                                      "a request that has no name here"};
static const struct answer granted = {0, unchanged, MADE_UP, "NV_OK, and nothing is done", NULL};

const struct answer *answer_of(uint32_t control)
{
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++)
        if (controls[i].number == control)
            return &controls[i];
    return strstr(control_name(control), "_GET_") ? &got : &granted;
}

static const struct {
    enum layout_name function;
    struct answer answer;
} rpcs[] = {
    {AT_rpc_static_info,
     {0, answer_static_info, MADE_UP, "memory by option, engines and UUID of our own",
      "NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO"}},
    {AT_rpc_alloc,
     {0, unchanged, REAL,
      "NV_OK: what the driver has accepted itself; the firmware's refusals are not played",
      "NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC"}},
    {AT_rpc_free, {0, unchanged, REAL, "NV_OK: free of what was made", "NV_VGPU_MSG_FUNCTION_FREE"}},
    {AT_rpc_dup_object,
     {0, unchanged, REAL, "NV_OK: what the driver has accepted itself", "NV_VGPU_MSG_FUNCTION_DUP_OBJECT"}},
    {AT_rpc_update_bar_pde,
     {0, unchanged, REAL, "the entry is written where the driver verifies it",
      "NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE"}},
    {AT_rpc_set_page_directory,
     {0, unchanged, REAL, "the engines use that directory", "NV_VGPU_MSG_FUNCTION_SET_PAGE_DIRECTORY"}},
    {AT_rpc_unset_page_directory,
     {0, unchanged, REAL, "the engines use no directory", "NV_VGPU_MSG_FUNCTION_UNSET_PAGE_DIRECTORY"}},
    {AT_rpc_guest_info,
     {0, unchanged, REAL, "NV_OK: versions are the driver's own",
      "NV_VGPU_MSG_FUNCTION_SET_GUEST_SYSTEM_INFO"}},
    {AT_rpc_system_info,
     {0, unchanged, REAL, "no answer is wanted", "NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO"}},
    {AT_rpc_registry, {0, unchanged, REAL, "no answer is wanted", "NV_VGPU_MSG_FUNCTION_SET_REGISTRY"}},
    {AT_rpc_unloading,
     {0, unchanged, REAL, "the GSP says it is suspended, as kernel_gsp_tu102.c waits for it",
      "NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER"}},
};

const struct answer *answer_of_rpc(const struct layout *layout, uint32_t function)
{
    for (size_t i = 0; i < sizeof rpcs / sizeof rpcs[0]; i++)
        if (layout->value[rpcs[i].function] == function)
            return &rpcs[i].answer;
    return &unknown;
}
