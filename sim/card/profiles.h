/* What a model of card is. The card process serves these facts; the simulated user-space libraries look up
 * by PCI id the ones that no ioctl carries (multiprocessors, clocks), as a driver's own libraries do. */
#ifndef MGPU_SIM_PROFILES_H
#define MGPU_SIM_PROFILES_H
#include "chip.h"
#include <stddef.h>
#include <stdint.h>

#define SIM_DRIVER_VERSION "580.95.05"
enum { SIM_CUDA_VERSION = 13000, SIM_PCI_VENDOR = 0x10de };
enum {
    COPY_CONTEXT_MIB = 2, /* what the driver itself takes for a group of the copy engine */
    LAUNCH_US = 10,       /* a kernel that is launched by a descriptor: what it computes is not known here */
};

struct card_profile {
    const char *key, *name;
    uint32_t memory_mib;
    uint32_t context_mib;     /* what the driver itself takes for one graphics group, below 256 */
    uint32_t copy_mib_per_ms; /* over PCIe, one way; about what the bus's generation carries */
    uint32_t channel_class;   /* the newest */
    enum chip chip;
    uint32_t architecture, implementation; /* as NV2080_CTRL_CMD_MC_GET_ARCH_INFO reports them */
    uint32_t gpcs, tpcs_per_gpc;           /* of the whole chip; TPCs have two SMs */
    uint32_t copy_engines;
    uint16_t pci_device, pci_subsystem;
    uint32_t cc_major, cc_minor, sm_count, threads_per_sm;
    uint32_t sm_clock_mhz, memory_clock_mhz, memory_bus_bits, l2_kib;
    uint32_t shared_per_sm_bytes, shared_per_block_optin_bytes;
};

extern const struct card_profile card_profiles[];
extern const size_t card_profile_count;

/* NULL when there is none. */
const struct card_profile *card_profile_by_key(const char *key, size_t length);
const struct card_profile *card_profile_by_pci(uint16_t pci_device);
#endif
