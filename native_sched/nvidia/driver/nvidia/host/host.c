#define _GNU_SOURCE
#include "host.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

/* Assigned (Documentation/admin-guide/devices.txt); 254 is the mode-setting node. */
enum { NVIDIA_MAJOR = 195, CONTROL_MINOR = 255, MODESET_MINOR = 254 };

int nvidia_classify(const struct stat *st, uint32_t uvm_major, struct nvidia_node *out)
{
    uint32_t major = major(st->st_rdev), minor = minor(st->st_rdev);

    if (!S_ISCHR(st->st_mode))
        return -ENOTTY;
    if (major == NVIDIA_MAJOR) {
        *out = (struct nvidia_node){minor == CONTROL_MINOR ? NODE_CTL : NODE_CARD, minor};
        return minor == MODESET_MINOR ? -EPERM : 0;
    }
    if (!uvm_major || major != uvm_major)
        return -ENOTTY;
    *out = (struct nvidia_node){NODE_UVM, minor};
    return minor ? -EPERM : 0; /* 1 is the tools' node, which sees other processes */
}

uint32_t nvidia_major_of(const char *majors_path, const char *name)
{
    FILE *f = fopen(majors_path, "re");
    char line[128], found[96];
    uint32_t number, result = 0;

    if (!f)
        return 0;
    while (!result && fgets(line, sizeof(line), f)) {
        if (!strncmp(line, "Block", 5))
            break;
        if (sscanf(line, "%u %95s", &number, found) == 2 && !strcmp(found, name))
            result = number;
    }
    fclose(f);
    return result;
}

static int call_driver(int fd, uint32_t cmd, void *arg)
{
    return ioctl(fd, (unsigned long)cmd, arg) < 0 ? -errno : 0;
}

const struct nvidia_host nvidia_host = {
    .dev_dir = "/dev",
    .pci_dir = "/sys/bus/pci/devices",
    .majors_path = "/proc/devices",
    .minors_path = "/proc/driver/nvidia-caps/mig-minors",
    .uvm_references_path = "/sys/module/nvidia_uvm/refcnt",
    .lsm_path = "/sys/kernel/security/lsm",
    .btf_path = "/sys/kernel/btf/vmlinux",
    .bpf_dir = "/sys/fs/bpf",
    .classify = nvidia_classify,
    .ioctl = call_driver,
};
