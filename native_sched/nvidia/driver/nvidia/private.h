/* Shared by the sources of the NVIDIA driver. */
#ifndef MGPU_NVIDIA_PRIVATE_H
#define MGPU_NVIDIA_PRIVATE_H
#include "client.h"
#include "instance.h"
#include "native_sched/nvidia/driver/driver.h"
#include "native_sched/nvidia/driver/nvidia/files/files.h"
#include "native_sched/nvidia/driver/nvidia/files/last_close.h"
#include "native_sched/nvidia/driver/nvidia/guard/guard.h"
#include "native_sched/nvidia/driver/nvidia/host/host.h"
#include "native_sched/nvidia/driver/registers.h"
#include <stdatomic.h>

/* For so long after a call waited for a file to be closed, closed files are looked for sooner. */
enum { AWAITED_MS = 100, NS_PER_MS = 1000 * 1000 };

struct driver {
    const struct nvidia_host *host;
    struct nvidia_files files;
    struct nvidia_client client;
    /* By the card's index. */
    const struct card *held[MAX_CARDS]; /* NULL: not added, or released */
    const struct chip *chip[MAX_CARDS]; /* NULL: nothing is known of it */
    struct registers registers[MAX_CARDS];
    struct nvidia_instance instance[MAX_CARDS]; /* where it is one of MIG */
    uint32_t uvm_major;
    struct guard guard;
    /* The watch: one thread at a time in next_closed(). */
    int wake; /* eventfd: a file is unlocated, or the driver is closed */
    atomic_bool stopping, unlocated;
    uint64_t scanned_at_ns, scan_gap_ns; /* of the last scan that came by itself */
    bool scans_sooner;                   /* while a call waits */
    _Atomic uint64_t awaited_at_ns;      /* when a call last waited for a file to be closed */
    uint32_t unlocated_next;             /* the unlocated control file that is asked about next */
    struct nvidia_last_close closes;
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_left;
    bool watched; /* next_closed() runs, and has not returned -ECANCELED */
};

int nvidia_open_with(const struct nvidia_host *host, struct files *files, struct driver **out);
void nvidia_close(struct driver *d);
/* nvidia_identify() with a descriptor that was fetched already. */
int nvidia_identify_fetched(struct driver *d, struct tenant *t, int ours, struct fd_place at,
                            struct open_file *out);
int64_t nvidia_managed(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to);
int nvidia_initialized(struct driver *d, const struct open_file *file, uint64_t flags);
int nvidia_adopt(struct driver *d, const struct open_file *file, uint32_t client, bool holds);
int nvidia_execute(struct driver *d, struct driver_call *call);
bool nvidia_must_continue(const struct driver_call *call);
int64_t nvidia_next_closed(struct driver *d);
bool nvidia_any_closing(struct driver *d, const struct open_file *file, uint32_t files);
/* Scans for unlocated files, when that is due, and releases unpollable ones that no process has. */
void nvidia_locate(struct driver *d, bool unlocated);
int nvidia_userd_map(struct driver *d, const struct rm_target *channel, struct userd *out);
void nvidia_userd_unmap(struct userd *userd);
#endif
