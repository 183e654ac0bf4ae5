/* Shared by the sources of the simulated card's driver. */
#ifndef MGPU_SIM_PRIVATE_H
#define MGPU_SIM_PRIVATE_H
#include "native_sched/nvidia/driver/registers.h"
#include <stdatomic.h>
#include <sys/un.h>

struct driver {
    struct files *files;
    struct sockaddr_un at;
    int events;
    const struct chip *chip[MAX_CARDS]; /* by minor; NULL: nothing is known of it */
    struct registers registers[MAX_CARDS];
    atomic_uint reread_us; /* between the mediator's read of a continued call and the driver's */
    pthread_mutex_t own;   /* guards the arbiter's own client: docs/threads.md */
    struct open_file own_file;
    int own_fd;
    bool released[MAX_CARDS]; /* by minor, as the next two */
    uint32_t own_client, own_device[MAX_CARDS], own_subdevice[MAX_CARDS];
};

int sim_execute(struct driver *d, struct driver_call *call);
/* A control file of the arbiter's own: the descriptor that keeps it open, and its id. */
int sim_open_control(struct driver *d, uint64_t *file);
int sim_client_exists(struct driver *d, uint32_t client);
int sim_pid_info(struct driver *d, uint32_t minor, struct rm_pid_info *info);
int sim_pids(struct driver *d, uint32_t minor, struct rm_pids *out);
int sim_samples(struct driver *d, const struct card *card, const struct rm_table *rm,
                struct card_samples *out);
bool sim_known_file(struct driver *d, pid_t pid, int dir, const char *fd, struct open_file *out);
/* Of the file behind a descriptor, all of it. */
int sim_map_readonly(int fd, void **at, size_t *bytes);
void sim_add_card(struct driver *d, const struct card *card);
void sim_release_card(struct driver *d, const struct card *card, bool alone);
int sim_engine_status(struct driver *d, const struct card *card, uint64_t engines, struct engine_status *out);
const struct chip *sim_chip(const struct driver *d, const struct card *card);
void sim_unmap_all(struct driver *d);
/* Whether the arbiter's own client may have objects of the card; what it has ends with a release. */
void sim_release(struct driver *d, uint32_t minor, bool released);
#endif
