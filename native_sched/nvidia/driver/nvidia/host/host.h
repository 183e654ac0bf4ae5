/* Where the driver's nodes are and how it is called: the seam at which tests put ordinary files and a driver
 * of their own. */
#ifndef MGPU_NVIDIA_HOST_H
#define MGPU_NVIDIA_HOST_H
#include "native_sched/nvidia/account/tenant.h"
#include <sys/stat.h>

struct nvidia_node {
    enum node_kind kind;
    uint32_t minor;
};

struct nvidia_host {
    const char *dev_dir;             /* /dev */
    const char *pci_dir;             /* /sys/bus/pci/devices */
    const char *majors_path;         /* /proc/devices */
    const char *minors_path;         /* /proc/driver/nvidia-caps/mig-minors */
    const char *uvm_references_path; /* /sys/module/nvidia_uvm/refcnt */
    const char *lsm_path;            /* /sys/kernel/security/lsm */
    const char *btf_path;            /* /sys/kernel/btf/vmlinux */
    const char *bpf_dir;             /* /sys/fs/bpf; NULL: no program is attached */
    /* Which node a file of this kind and number was opened by. -ENOTTY: none of NVIDIA's; -EPERM: one of
     * NVIDIA's that no tenant gets. */
    int (*classify)(const struct stat *st, uint32_t uvm_major, struct nvidia_node *out);
    /* 0 or a negative errno. */
    int (*ioctl)(int fd, uint32_t cmd, void *arg);
};
extern const struct nvidia_host nvidia_host;

int nvidia_classify(const struct stat *st, uint32_t uvm_major, struct nvidia_node *out);
/* The number under which a /proc/devices lists the driver; 0: it does not. */
uint32_t nvidia_major_of(const char *majors_path, const char *name);
#endif
