/* Keeps open files of NVIDIA's nodes from processes of no grant, where the kernel takes BPF programs as a
 * security module (CONFIG_BPF_LSM, and bpf in its list of modules). The program and its map are pinned in
 * bpffs, so that they hold while no mgpud runs. */
#ifndef MGPU_NVIDIA_GUARD_H
#define MGPU_NVIDIA_GUARD_H
#include "native_sched/nvidia/driver/nvidia/host/host.h"

struct guard {
    bool begun;
    int map;       /* where it is on */
    int state;     /* 1: on; 0: the kernel has it not; below: why it failed */
    uint32_t kept; /* tenants at the last call */
};

/* pid_ns: of all tenants the namespaces whose processes may receive such files; 0: the tenant has none. The
 * first call attaches the program. Returns the state; once it is on, an error concerns this call alone. */
int guard_keep(struct guard *g, const struct nvidia_host *host, const uint32_t *pid_ns, uint32_t tenants);
/* Without tenants it takes the program off. */
void guard_close(struct guard *g, const struct nvidia_host *host);
#endif
