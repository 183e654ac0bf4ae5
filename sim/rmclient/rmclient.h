/* The way into the driver that both simulated libraries share: the nodes under /dev, a root client, a device
 * and a subdevice per card, and the ioctls. What it knows about a card is what the ioctls answer.
 *
 * A session belongs to the process that opened it: RM ties a client to its process. The library opens and
 * closes it with rmc_lock() held; the calls themselves need no lock. */
#ifndef MGPU_SIM_RMCLIENT_H
#define MGPU_SIM_RMCLIENT_H
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../native_sched/nvidia/rm/table.h"
#include "../card/profiles.h"
#include <stdbool.h>
#include <sys/types.h>

enum { RMC_STATUS_IOCTL_FAILED = 0xffff }; /* in place of an RM status: ioctl() itself failed */

struct rmc_card {
    const struct card_profile *model; /* facts of this kind of card that no ioctl carries */
    uint32_t gpu_id, instance;
    struct rm_card_info info;
    struct rm_arch arch;
    struct rm_pci pci;
    int node_fd;
    uint32_t device, subdevice;
    char name[64], uuid[64], bus_id[32];
};

struct rmc {
    pid_t pid; /* 0: closed */
    int ctl_fd;
    uint32_t client, card_count;
    char driver_version[64];
    struct rm_table table; /* its sizes */
    struct rmc_card cards[RM_MAX_CARDS];
};

/* 0 or a negative errno: -ENOENT no node, -EACCES or -EPERM not allowed, -ENOTTY nothing answers behind it.
 */
int rmc_open(struct rmc *rm);
/* Closing in a forked child lets go of the inherited files and leaves the parent's client alone. */
void rmc_close(struct rmc *rm);

/* The library's one lock. fork() waits for it, so that a child never finds it held. */
void rmc_lock(void);
void rmc_unlock(void);

/* A fresh fd, or a negative errno. */
int rmc_open_path(const char *path);
/* A fresh fd of the card's node, registered with the session; or a negative errno. */
int rmc_open_node(const struct rmc *rm, const struct rmc_card *card);
/* 0 or a negative errno; begun anew after a signal. */
int rmc_ioctl(int fd, uint32_t nr, void *argument, uint32_t bytes);
/* A command on a file of nvidia-uvm: an enum rm_status or RMC_STATUS_IOCTL_FAILED. */
uint32_t rmc_uvm(const struct rmc *rm, int fd, uint32_t cmd, void *params);

/* In binary. */
void rmc_uuid(const struct rmc_card *card, uint8_t uuid[16]);

/* An enum rm_status or RMC_STATUS_IOCTL_FAILED. Parameters are those of the newest driver: as many bytes of
 * them are passed as this one takes. *handle 0: the driver chooses. */
uint32_t rmc_alloc(const struct rmc *rm, uint32_t parent, uint32_t *handle, uint32_t class_id, void *params,
                   uint32_t params_bytes);
uint32_t rmc_free(const struct rmc *rm, uint32_t handle);
uint32_t rmc_control(const struct rmc *rm, uint32_t object, uint32_t cmd, void *params,
                     uint32_t params_bytes);

/* What stands for an object's memory: `bytes` of it are asked for, `fd` is mmap()ed at `offset`. Of a
 * doorbell, fd is what is written to. The caller closes it. host: the memory is not the card's, so RM maps it
 * through a control file. */
struct rmc_mapping {
    uint64_t bytes, offset;
    int fd;
    bool host;
};
uint32_t rmc_map(const struct rmc *rm, const struct rmc_card *card, uint32_t parent, uint32_t handle,
                 struct rmc_mapping *mapping);

/* Memory that other processes may have. Names: in their own clients, by the client and handle of its maker;
 * or through a file, which says to which card it belongs and how large it is. */
uint32_t rmc_share(const struct rmc *rm, uint32_t handle);
uint32_t rmc_dup(const struct rmc *rm, const struct rmc_card *card, uint32_t *handle, uint32_t client,
                 uint32_t source);
uint32_t rmc_export(const struct rmc *rm, const struct rmc_card *card, uint32_t handle, uint64_t bytes,
                    int *fd);
uint32_t rmc_import(const struct rmc *rm, int fd, const struct rmc_card **card, uint32_t *handle,
                    uint64_t *bytes);

/* What the two are to each other, of enum rmc_peer_caps, as libcuda asks; and as NVML does: 0 where there is
 * such a way, by NVML's numbers of ways. */
enum rmc_peer_caps { RMC_PEER_WRITES = 1, RMC_PEER_READS = 2, RMC_PEER_ATOMICS = 16 };
enum { RMC_PEER_STATUSES = 5 };
uint32_t rmc_peers(const struct rmc *rm, const struct rmc_card *one, const struct rmc_card *other,
                   uint32_t *caps);
uint32_t rmc_peer_statuses(const struct rmc *rm, const struct rmc_card *one, const struct rmc_card *other,
                           uint8_t statuses[RMC_PEER_STATUSES]);

/* A link of NVLink, and the address of what is at its other end. 0: the card has no links. */
struct rmc_link {
    bool connected, to_gpu;
    uint32_t domain, bus, slot;
};
uint32_t rmc_link_version(const struct rmc *rm, const struct rmc_card *card, uint32_t *version);
uint32_t rmc_link(const struct rmc *rm, const struct rmc_card *card, uint32_t number, struct rmc_link *link);

/* Video memory in KiB by enum rm_fb_index; at most RM_FB_ENTRIES values in one call. */
uint32_t rmc_memory_kib(const struct rmc *rm, const struct rmc_card *card, const uint32_t *indices,
                        uint32_t *kib, uint32_t count);
#endif
