#include "instance.h"
#include "base/scoped.h"
#include <stdio.h>

#define WITH_INSTANCE(i) LOCKED_(instance_held, &(i)->lock)

void nvidia_instance_init(struct nvidia_instance *i, const struct card *is, const struct own_card *card)
{
    *i = (struct nvidia_instance){.card = *card, .is = is};
    mutex_init_inheriting(&i->lock);
}

/* RM duplicates the descriptor, into the process that calls (osRmCapAcquire() in os.c,
 * nv_cap_validate_and_dup_fd() in nv-caps.c): ours is needed no longer. */
static int join_instance(struct nvidia_client *c, uint32_t parent, uint32_t *handle, uint32_t class_id,
                         uint32_t id, const char *capability)
{
    scoped_fd int fd = nvidia_client_capability(c->host, capability);
    struct rm_instance of = {.descriptor = (uint32_t)fd, .id = id};

    *handle = nvidia_client_handle(c);
    return fd < 0 ? fd : nvidia_client_alloc(c, parent, handle, class_id, &of, sizeof(of));
}

/* Subscribes to both instances. RM then takes engines in questions about runlists by their numbers in the
 * client's compute instance (kmigmgrGetInstanceRefFromDevice(), kmigmgrGetLocalToGlobalEngineType() in
 * kernel_mig_manager.c), as it does for channel groups (kchangrpapiConstruct() in
 * kernel_channel_group_api.c). */
static int join_partition(struct nvidia_instance *i)
{
    char name[64];
    int used = snprintf(name, sizeof(name), "gpu%u/gi%u/", i->card.minor, i->is->gpu_instance), e;
    struct nvidia_client *c = &i->client;

    snprintf(name + used, sizeof(name) - (size_t)used, "access");
    if ((e = join_instance(c, c->card[0].subdevice, &i->gpu, AMPERE_SMC_PARTITION_REF, i->is->gpu_instance,
                           name)) < 0)
        return e;
    snprintf(name + used, sizeof(name) - (size_t)used, "ci%u/access", i->is->compute_instance);
    if ((e = join_instance(c, i->gpu, &i->compute, AMPERE_SMC_EXEC_PARTITION_REF, i->is->compute_instance,
                           name)) < 0)
        (void)nvidia_client_free(c, c->card[0].subdevice, i->gpu);
    return e;
}

int nvidia_instance_enter(struct nvidia_instance *i, const struct nvidia_host *host,
                          struct nvidia_client **out)
{
    int e;
    WITH_INSTANCE(i);

    *out = &i->client;
    if (i->users++)
        return 0;
    if ((e = nvidia_client_open_on(&i->client, host, &i->card)) == 0 && (e = join_partition(i)) < 0)
        nvidia_client_close(&i->client);
    i->users -= e < 0;
    return e;
}

/* The subscriptions by name, before the client ends with its file: RM closes its duplicates by their numbers
 * in the process that frees, and a last close may come in a thread that has a table of its own
 * (host/unshared.h). */
void nvidia_instance_leave(struct nvidia_instance *i)
{
    struct nvidia_client *c = &i->client;
    WITH_INSTANCE(i);

    if (--i->users)
        return;
    (void)nvidia_client_free(c, i->gpu, i->compute);
    (void)nvidia_client_free(c, c->card[0].subdevice, i->gpu);
    nvidia_client_close(c);
}
