#define _GNU_SOURCE
#include "mig_on_card.h"
#include "../../native_sched/nvidia/rm/arbiter_abi.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 64 };

static struct own_client {
    uint32_t root, gpu, compute; /* instances that it is subscribed to; RM_NO_INSTANCE: none */
    uint32_t handle[2];
} own[CLIENTS];
static int clients;

void mig_on_card_begin(void)
{
    clients = 0;
}

void mig_on_card_client(uint32_t root)
{
    if (clients < CLIENTS)
        own[clients++] = (struct own_client){root, RM_NO_INSTANCE, RM_NO_INSTANCE, {0}};
}

static struct own_client *find(uint32_t root)
{
    for (int i = 0; i < clients; i++)
        if (own[i].root == root)
            return &own[i];
    return NULL;
}

bool mig_on_card_ours(uint32_t root)
{
    return find(root);
}

/* By the capability of GPU instance N, nvidia-capN, and of compute instance M of it, nvidia-cap10N+M. */
bool mig_on_card_subscribes(struct rm_alloc *alloc)
{
    const struct rm_instance *want = (const void *)(uintptr_t)alloc->params;
    bool gpu = alloc->class_id == AMPERE_SMC_PARTITION_REF;
    struct own_client *c = find(alloc->root);
    char path[64], name[300] = "", expected[64];

    if (!c || (!gpu && alloc->class_id != AMPERE_SMC_EXEC_PARTITION_REF))
        return false;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)want->descriptor);
    snprintf(expected, sizeof(expected), "/nvidia-cap%u", gpu ? want->id : 10 * c->gpu + want->id);
    alloc->status = NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (readlink(path, name, sizeof(name) - 1) < 0 || !strstr(name, expected))
        return true;
    *(gpu ? &c->gpu : &c->compute) = want->id;
    c->handle[!gpu] = alloc->handle;
    alloc->status = NV_OK;
    return true;
}

bool mig_on_card_freed(uint32_t root, uint32_t handle)
{
    struct own_client *c = find(root);

    if (c && handle == c->handle[0])
        c->gpu = RM_NO_INSTANCE;
    if (c && handle == c->handle[1])
        c->compute = RM_NO_INSTANCE;
    return c && (handle == c->handle[0] || handle == c->handle[1]);
}

uint32_t on_card_subscriptions(void)
{
    uint32_t n = 0;

    for (int i = 0; i < clients; i++)
        n += (own[i].gpu != RM_NO_INSTANCE) + (own[i].compute != RM_NO_INSTANCE);
    return n;
}

/* sizeof() in ctrlc637.h and ctrlc638.h, 535 to 595. */
enum { ACTIVE_IDS_BYTES = 364, UUID_BYTES = 57, PARTITION_IDS_BYTES = 40, DEVICE_IDS_BYTES = 3076 };

bool mig_on_card_asks_instance(const struct rm_control *ctl)
{
    return ctl->cmd == NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS || ctl->cmd == NVC638_CTRL_CMD_GET_UUID;
}

bool mig_on_card_wrong_size(const struct rm_control *ctl)
{
    switch (ctl->cmd) {
    case NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS:
        return ctl->params_size != ACTIVE_IDS_BYTES;
    case NVC638_CTRL_CMD_GET_UUID:
        return ctl->params_size != UUID_BYTES;
    case NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS:
        return ctl->params_size != PARTITION_IDS_BYTES;
    case NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS:
        return ctl->params_size != DEVICE_IDS_BYTES;
    default:
        return false;
    }
}

/* Graphics, and one copy engine: nvidia_registers.py knows where. */
uint32_t mig_on_card_runlist(uint32_t root, uint32_t *list, uint32_t bytes)
{
    const struct own_client *c = find(root);
    bool copies = list[0] == RM_ENGINE_COPY0;

    if (bytes != sizeof(*list) * RM_RUNLIST_LISTS * RM_RUNLIST_ENGINES)
        return NV_ERR_INVALID_ARGUMENT;
    if (!c || c->compute == RM_NO_INSTANCE || (list[0] != RM_ENGINE_GRAPHICS && !copies))
        return NV_ERR_INVALID_ARGUMENT;
    list[RM_RUNLIST_ENGINES] = c->gpu << 16 | c->compute << 12 | (uint32_t)copies << 11;
    return NV_OK;
}
