/* The arbiter's own RM client. It asks what tenants may not ask, and maps what tenants' channels share with
 * it. It allocates nothing on the cards. Its files are the arbiter's, so they may stay open. */
#ifndef MGPU_NVIDIA_CLIENT_H
#define MGPU_NVIDIA_CLIENT_H
#include "native_sched/nvidia/driver/nvidia/host/host.h"
#include "native_sched/nvidia/driver/registers.h"
#include "native_sched/nvidia/rm/arbiter_abi.h"
#include <stdatomic.h>

struct own_card {
    uint32_t minor, gpu_id, device_instance;
    atomic_uint device, subdevice; /* handles; subdevice 0: the card is not attached */
    uint32_t pci_domain;
    uint8_t pci_bus, pci_slot;
    int node; /* keeps the card attached */
};

struct nvidia_client {
    const struct nvidia_host *host;
    int ctl; /* -1: released */
    uint32_t root;
    atomic_uint next_handle;
    struct own_card card[MAX_CARDS];
    atomic_uint cards; /* grows; one that a thread sees is whole */
};

/* Errors: a negative errno; -EIO for an RM status that is not OK. */
int nvidia_client_open(struct nvidia_client *c, const struct nvidia_host *host);
/* One that has that card alone, its first, attached, and address spaces of its own there. */
int nvidia_client_open_on(struct nvidia_client *c, const struct nvidia_host *host,
                          const struct own_card *card);
void nvidia_client_close(struct nvidia_client *c);
/* From one thread at a time: attaches the card, unless it is. NULL: there is none, or it cannot be. */
const struct own_card *nvidia_client_attach(struct nvidia_client *c, uint32_t minor);
/* ... and lets go of it. Calls that other threads make on it meanwhile fail. */
void nvidia_client_detach(struct nvidia_client *c, uint32_t minor);
/* ... and of the control node, where no card is attached and no thread asks of one, until the next attach. */
void nvidia_client_rest(struct nvidia_client *c);
/* NULL: the card is not attached. */
const struct own_card *nvidia_client_card(const struct nvidia_client *c, uint32_t minor);

int nvidia_client_control(const struct nvidia_client *c, uint32_t object, uint32_t cmd, void *params,
                          uint32_t bytes);
int nvidia_client_alloc(const struct nvidia_client *c, uint32_t parent, uint32_t *handle, uint32_t class_id,
                        void *params, uint32_t bytes);
int nvidia_client_free(const struct nvidia_client *c, uint32_t parent, uint32_t handle);
/* Duplicates an object into our client. RM's answer is in `dup`; -errno where the driver could not be called.
 */
int nvidia_client_dup(const struct nvidia_client *c, struct rm_dup *dup);
/* Whether a root client of that handle exists, of any process and file: 0 or 1, or a negative errno. */
int nvidia_client_exists(const struct nvidia_client *c, uint32_t client);
/* Whether that client, of whomever, was made on the file behind our descriptor. */
bool nvidia_client_answers(const struct nvidia_client *c, int fd, uint32_t client);
uint32_t nvidia_client_handle(struct nvidia_client *c);
/* Maps what `what` names, to be read, through a new file of the card's node or, with NULL, of the control
 * node. The mapping keeps the file. An error may be RM's status (rm_control.h). */
int nvidia_client_map(const struct nvidia_client *c, const struct own_card *card, struct rm_map_memory *what,
                      void **at);
/* The card's registers, as many bytes as BAR0 has. RM lets clients of root map them. */
int nvidia_client_registers(struct nvidia_client *c, const struct own_card *card, size_t bytes, void **at);
/* Opens the right to MIG instances by its name in the driver's list. -ENOENT: there is none. */
int nvidia_client_capability(const struct nvidia_host *host, const char *name);

/* The runlists of graphics, copy and video engines, in `out`; returns how many. Needs CAP_SYS_ADMIN in the
 * calling thread (the control is privileged). */
uint32_t nvidia_client_runlists(const struct nvidia_client *c, const struct own_card *card,
                                struct runlist *out, uint32_t max);
/* NULL: one that nothing is known of, or RM does not say. */
const struct chip *nvidia_client_chip(const struct nvidia_client *c, const struct own_card *card);
#endif
