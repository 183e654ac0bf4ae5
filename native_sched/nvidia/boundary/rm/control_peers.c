/* CUDA's programs do not reach one card's memory from another: no object of a tenant's makes them peers
 * (class NV50_P2P; nvidia-uvm's peers are uvm/peers.c), and none lies in memory of several cards or of an
 * NVLink fabric. Every answer to a program that asks first says so, in the words of a driver whose cards have
 * no such ways: then libcuda, NCCL and libraries above them go through the host by themselves, and need no
 * settings. A yes here and a no later ends them (google/gvisor#9827, #9372). Answered without the driver,
 * which knows of cards that the tenant does not have. */
#include "control.h"
#include "view.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { CLASSES_MAX = 1024 };

static bool all_granted(const struct call *c, const uint32_t *gpu_id, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!granted_gpu(c, gpu_id[i]))
            return false;
    return true;
}

static bool is_client(struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    WITH_TENANT(c->tenant);

    return call_find(c, ctl->client, ctl->client) && ctl->object == ctl->client;
}

/* NV_OK, or what RM says of such parameters. */
static uint32_t no_caps(struct call *c)
{
    struct rm_p2p_caps *caps = (void *)c->params;

    if (!is_client(c))
        return NV_ERR_INVALID_CLIENT;
    if (!caps->count || caps->count > RM_MAX_CARDS || !all_granted(c, caps->gpu_id, caps->count))
        return NV_ERR_INVALID_ARGUMENT;
    caps->caps = caps->read_engines = caps->write_engines = 0;
    memset(caps->status, RM_P2P_NOT_SUPPORTED, sizeof(caps->status));
    return NV_OK;
}

/* The rest are numbers that cards have for each other. */
int control_p2p_caps(struct call *c, uint32_t *status)
{
    if ((*status = no_caps(c)) == NV_OK)
        memset(c->params + RM_P2P_LISTS_AT, RM_P2P_NO_PEER, c->params_bytes - RM_P2P_LISTS_AT);
    return 0;
}

/* The same, where the caller says. */
int control_p2p_caps_lists(struct call *c, uint32_t *status)
{
    static const uint8_t none[RM_MAX_CARDS * RM_MAX_CARDS * sizeof(uint32_t)] = {
        [0 ... sizeof(none) - 1] = RM_P2P_NO_PEER};
    uint32_t count;
    uint64_t at;
    int e = 0;

    if ((*status = no_caps(c)) != NV_OK)
        return 0;
    count = ((const struct rm_p2p_caps *)(const void *)c->params)->count;
    for (uint32_t i = RM_P2P_POINTERS_AT; e == 0 && i + sizeof(at) <= c->params_bytes; i += sizeof(at)) {
        memcpy(&at, c->params + i, sizeof(at));
        if (at && !caller_waits(c->caller))
            return -EINTR;
        if (at)
            e = caller_write_both(c->caller, at, none, count * count * sizeof(uint32_t), 0, NULL, 0);
    }
    return e;
}

int control_p2p_matrix(struct call *c, uint32_t *status)
{
    struct rm_p2p_matrix *m = (void *)c->params;

    *status = NV_ERR_INVALID_ARGUMENT;
    if (!m->a || m->a > RM_P2P_GROUP || m->b > RM_P2P_GROUP || !all_granted(c, m->gpu_id_a, m->a) ||
        !all_granted(c, m->gpu_id_b, m->b))
        return 0;
    *status = is_client(c) ? NV_OK : NV_ERR_INVALID_CLIENT;
    memset(c->params + sizeof(*m), 0, c->params_bytes - sizeof(*m));
    return 0;
}

int control_fabric_status(struct call *c, uint32_t *status)
{
    uint32_t none = RM_FABRIC_SKIP;

    *status = is_client(c) ? NV_OK : NV_ERR_INVALID_CLIENT;
    memcpy(c->params, &none, sizeof(none));
    return 0;
}

int control_no_links(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find(c, ctl->client, ctl->object);

    if (!slot || rm_kind_of(o->slot[slot].class_id) != RM_KIND_SUBDEVICE)
        *status = NV_ERR_INVALID_OBJECT_HANDLE;
    memset(c->params, 0, c->params_bytes);
    return 0;
}

static uint32_t without_unlisted(uint32_t *list, uint32_t count)
{
    const struct rm_row *row;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!(row = rm_class_row(NULL, list[i])) || !row->unlisted)
            list[kept++] = list[i];
    memset(list + kept, 0, (count - kept) * sizeof(*list));
    return kept;
}

int control_classes(struct call *c, uint32_t *status)
{
    struct rm_classes *classes = (void *)c->params;
    uint32_t room = (c->params_bytes - (uint32_t)sizeof(*classes)) / sizeof(classes->list[0]);
    int e = call_driver(c);

    if (e == 0 && *status == NV_OK && classes->count <= room)
        classes->count = without_unlisted(classes->list, classes->count);
    return e;
}

/* The older way: asked how many there are, then for as many. The driver is asked for all at both times. */
int control_class_list(struct call *c, uint32_t *status)
{
    struct rm_class_list *theirs = (void *)c->params, request = *theirs;
    uint32_t *ours = (void *)(c->params + sizeof(request));
    int e;

    *theirs = (struct rm_class_list){.count = CLASSES_MAX, .list = (uintptr_t)ours};
    memset(ours, 0, CLASSES_MAX * sizeof(*ours));
    e = call_driver(c);
    theirs->list = request.list;
    if (e < 0 || *status)
        return e;
    theirs->count = without_unlisted(ours, theirs->count < CLASSES_MAX ? theirs->count : CLASSES_MAX);
    if (!request.list)
        return 0;
    if (request.count < theirs->count)
        *status = NV_ERR_INVALID_PARAM_STRUCT;
    else if (caller_waits(c->caller))
        e = caller_write_both(c->caller, request.list, ours, theirs->count * sizeof(*ours), 0, NULL, 0);
    return e;
}
