/* Controls that name cards by RM's ids, or list them: a tenant's cards are those that it was granted, and no
 * others are. */
#include "control.h"
#include "handlers.h"
#include "view.h"
#include <errno.h>
#include <string.h>

#define NO_ID 0xffffffffu
enum { ALL_IDS = 0xffff }; /* NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS, and to detach */

static bool granted_device(const struct call *c, uint32_t gpu_id, uint32_t gpu_instance,
                           uint32_t compute_instance)
{
    for (uint32_t i = 0; i < c->m->cards; i++) {
        const struct card *card = &c->m->card[i];

        if (card->gpu_id != gpu_id || !c->tenant->granted[card->index])
            continue;
        return card->gpu_instance == RM_NO_INSTANCE ||
               (card->gpu_instance == gpu_instance && card->compute_instance == compute_instance);
    }
    return false;
}

static void list_granted(const struct call *c, struct rm_gpu_ids *out)
{
    uint32_t n = 0;

    memset(out, 0xff, sizeof(*out));
    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->tenant->granted[c->m->card[i].index])
            out->id[n++] = c->m->card[i].gpu_id;
}

int control_of_card(struct call *c, uint32_t *status)
{
    uint32_t gpu_id;

    memcpy(&gpu_id, c->params, sizeof(gpu_id));
    if (!granted_gpu(c, gpu_id)) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    return call_driver(c);
}

/* The driver sets a bit for each card of the node. */
int control_device_ids(struct call *c, uint32_t *status)
{
    struct rm_device_ids *ids = (void *)c->params;
    uint32_t granted = 0;
    int e;

    if ((e = call_driver(c)) < 0 || *status)
        return e;
    WITH_TENANT(c->tenant);
    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->tenant->granted[c->m->card[i].index] && c->m->card[i].device_instance < RM_MAX_CARDS)
            granted |= 1u << c->m->card[i].device_instance;
    ids->mask &= granted;
    return 0;
}

/* Answers with two lists, the cards and the excluded ones, and from 580.65 on a word of flags for each card.
 * No flag that is known here is set. */
int control_probed_ids(struct call *c, uint32_t *status)
{
    struct rm_gpu_ids *ids = (void *)c->params;

    (void)status;
    memset(c->params, 0, c->params_bytes);
    memset(&ids[1], 0xff, sizeof(ids[1]));
    WITH_TENANT(c->tenant);
    list_granted(c, &ids[0]);
    return 0;
}

int control_active_ids(struct call *c, uint32_t *status)
{
    struct rm_active_ids *list = (void *)c->params;
    uint32_t kept = 0;
    int e;

    if ((e = call_driver(c)) < 0 || *status)
        return e;
    for (uint32_t i = 0; i < list->count && i < RM_MAX_ACTIVE_DEVICES; i++)
        if (granted_device(c, list->device[i].gpu_id, list->device[i].gpu_instance,
                           list->device[i].compute_instance))
            list->device[kept++] = list->device[i];
    memset(&list->device[kept], 0, (RM_MAX_ACTIVE_DEVICES - kept) * sizeof(list->device[0]));
    list->count = kept;
    return 0;
}

int control_attach(struct call *c, uint32_t *status)
{
    struct rm_gpu_ids *ids = (void *)c->params;

    if (ids->id[0] == ALL_IDS)
        list_granted(c, ids);
    for (uint32_t i = 0; i < RM_MAX_CARDS && ids->id[i] != NO_ID; i++)
        if (!granted_gpu(c, ids->id[i])) {
            *status = NV_ERR_INVALID_ARGUMENT;
            return 0;
        }
    return call_driver(c);
}

/* The driver opens each of the cards and keeps it open with the file; 0 is none. */
struct answer mediate_attach_gpus(struct call *c)
{
    uint32_t gpu_id;

    for (uint32_t i = 0; i + sizeof(gpu_id) <= c->outer_bytes; i += sizeof(gpu_id)) {
        memcpy(&gpu_id, c->outer + i, sizeof(gpu_id));
        if (gpu_id && !granted_gpu(c, gpu_id))
            return failed(-EINVAL);
    }
    return driver_answer(call_driver(c), NV_OK);
}

/* The GPU instances of the object's card: the driver lists those of all. */
int control_gpu_instances(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_gpu_instances *list = (void *)c->params;
    const struct card *card;
    uint32_t kept = 0;
    int e;

    if ((e = call_driver(c)) < 0 || *status)
        return e;
    {
        WITH_TENANT(c->tenant);
        uint32_t slot = call_find(c, ctl->client, ctl->object);

        card = slot ? mediator_card(c->m, c->tenant->objects.slot[slot].card) : NULL;
    }
    for (uint32_t i = 0; i < list->count && i < RM_MAX_GPU_INSTANCES; i++)
        if (card && list->id[i] == card->gpu_instance)
            list->id[kept++] = list->id[i];
    for (uint32_t i = kept; i < RM_MAX_GPU_INSTANCES; i++)
        list->id[i] = RM_NO_INSTANCE;
    list->count = kept;
    return 0;
}
