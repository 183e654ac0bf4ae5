#include "uvm.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <stdio.h>

/* An open file of a character device has two references to the module: chrdev_open() takes one to the device
 * (cdev_get) and one to its operations (fops_get), and __fput() puts both, after the driver's own release.
 * UVM takes none by itself, and no module needs it. */
enum { REFERENCES_OF_A_FILE = 2 };

bool nvidia_uvm_is_initialized(const struct nvidia_host *host, int fd)
{
    /* No range can be that, which UVM answers only once it is initialised. */
    struct uvm_unmap_external unmap = {.range = {0, 0}};

    return host->ioctl(fd, UVM_UNMAP_EXTERNAL, &unmap) == 0 && unmap.status == NV_ERR_INVALID_ADDRESS;
}

/* While the machine is being suspended UVM answers nothing (uvm_unlocked_ioctl()). */
int nvidia_uvm_initialized_as(const struct nvidia_host *host, int fd, uint64_t flags)
{
    struct uvm_pageable pageable = {0};
    struct uvm_initialize params = {.flags = flags};

    if (host->ioctl(fd, UVM_PAGEABLE_MEM_ACCESS, &pageable) < 0)
        return -EBUSY;
    if (pageable.status != NV_OK)
        return -ENODATA;
    if (host->ioctl(fd, UVM_INITIALIZE, &params) < 0)
        return -EBUSY;
    return (!pageable.access || !(flags & UVM_INIT_DISABLE_HMM)) && params.status == NV_OK;
}

uint32_t nvidia_uvm_open_files(const struct nvidia_host *host)
{
    FILE *f = fopen(host->uvm_references_path, "re");
    unsigned int references;
    bool counted;

    if (!f)
        return UINT32_MAX;
    counted = fscanf(f, "%u", &references) == 1;
    fclose(f);
    if (!counted || references % REFERENCES_OF_A_FILE)
        return UINT32_MAX;
    return references / REFERENCES_OF_A_FILE;
}
