/* What the files of the NVIDIA driver share. */
#ifndef MGPU_NVIDIA_PRIVATE_H
#define MGPU_NVIDIA_PRIVATE_H
#include "driver.h"
#include "nvidia_client.h"
#include "nvidia_files.h"
#include "nvidia_host.h"
#include "nvidia_instance.h"
#include "nvidia_last_close.h"
#include "nvidia_status.h"
#include <stdatomic.h>

struct driver {
    const struct nvidia_host *host;
    struct nvidia_files files;
    struct nvidia_client client;
    /* By the card's index. */
    struct nvidia_status status[MAX_CARDS];
    struct nvidia_instance instance[MAX_CARDS]; /* where it is one of MIG */
    uint32_t uvm_major;
    /* The watch: one thread at a time in next_gone(). */
    int wake; /* eventfd: a file is lost, or the driver is closed */
    atomic_bool stopping, lost;
    uint64_t scanned_at_ns, scan_gap_ns;
    uint32_t hidden_next; /* of the control files that nobody sees, the one that is asked about next */
    struct last_close last_close;
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_left;
    bool watched; /* next_gone() has been asked, and has not said that it is over */
};

int nvidia_open_with(const struct nvidia_host *host, struct files *files, struct driver **out);
void nvidia_close(struct driver *d);
/* nvidia_identify() for what has been fetched already. */
int nvidia_identify_fetched(struct driver *d, struct tenant *t, int ours, struct fd_place at,
                            struct open_file *out);
int64_t nvidia_managed(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to);
int nvidia_initialized(struct driver *d, const struct open_file *file, uint64_t flags);
int nvidia_adopt(struct driver *d, const struct open_file *file, uint32_t client, bool holds);
/* The client was made on the file behind our descriptor. */
bool nvidia_answers(const struct driver *d, int fd, uint32_t client);
int nvidia_execute(struct driver *d, struct driver_call *call);
bool nvidia_must_continue(const struct driver_call *call);
int64_t nvidia_next_gone(struct driver *d);
bool nvidia_any_ended(struct driver *d, const struct open_file *file, uint32_t files);
/* Looks for files that are lost, when that is due, and lets go of those that cannot be polled and are in no process. */
void nvidia_find_lost(struct driver *d, bool lost);
int nvidia_userd_map(struct driver *d, const struct rm_target *channel, struct userd *out);
void nvidia_userd_unmap(struct userd *userd);
int nvidia_engine_status(struct driver *d, const struct card *card, struct engine_status *out);
#endif
