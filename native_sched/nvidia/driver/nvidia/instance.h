/* The arbiter's client on one MIG instance, subscribed to that alone. RM tells runlists, and lets video
 * memory be duplicated, by the subscription of the client that asks.
 *
 * RM deletes no instance that has a subscriber, so the client exists only while it is used. */
#ifndef MGPU_NVIDIA_INSTANCE_H
#define MGPU_NVIDIA_INSTANCE_H
#include "base/mutex.h"
#include "client.h"

struct nvidia_instance {
    pthread_mutex_t lock;
    struct own_card card;
    const struct card *is; /* of the inventory; NULL: no instance */
    struct nvidia_client client;
    uint32_t gpu, compute; /* handles of the subscriptions */
    uint32_t users;
};

/* card: as the arbiter's own client has it. */
void nvidia_instance_init(struct nvidia_instance *i, const struct card *is, const struct own_card *card);

/* The client, its one card attached, until nvidia_instance_leave(). A negative errno: the instance or its
 * capability is gone, or RM refuses. */
int nvidia_instance_enter(struct nvidia_instance *i, const struct nvidia_host *host,
                          struct nvidia_client **out);
void nvidia_instance_leave(struct nvidia_instance *i);
#endif
