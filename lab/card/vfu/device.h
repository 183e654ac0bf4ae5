/* One PCI device behind a vfio-user socket, whom QEMU's vfio-user-pci connects to. */
#ifndef MGPU_LAB_DEVICE_H
#define MGPU_LAB_DEVICE_H
#include "frame.h"

enum { DEVICE_REGIONS = 9, DEVICE_CONFIG = 7, DEVICE_IRQS = 5, DEVICE_MSI = 1, DEVICE_VECTORS = 8 };

/* What the device does; all are called from the thread that serves. */
struct device_calls {
    /* All of it lies in the region. */
    void (*read)(void *card, uint32_t region, uint64_t offset, void *to, uint32_t bytes);
    void (*write)(void *card, uint32_t region, uint64_t offset, const void *from, uint32_t bytes);
    /* fd: not the device's to keep; -1: nothing of it can be seen. False: no room. */
    bool (*map)(void *card, uint64_t address, uint64_t bytes, int fd, uint64_t offset);
    void (*unmap)(void *card, uint64_t address, uint64_t bytes, bool all);
    void (*reset)(void *card);
};

struct device {
    const struct device_calls *calls;
    void *card;
    uint64_t region_bytes[DEVICE_REGIONS];
    uint32_t irqs[DEVICE_IRQS];
    int event[DEVICE_IRQS][DEVICE_VECTORS]; /* -1: nobody waits. Under the lock below */
};

void device_start(struct device *device);
/* Until the other end closes: 0, or negative errno. */
int device_serve(struct device *device, int socket);
/* From any thread. False: the guest has not asked for it. */
bool device_interrupt(struct device *device);
#endif
