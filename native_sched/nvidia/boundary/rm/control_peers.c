/* Peers: memory of one card of the container is reached from another. A program asks before it tries, and
 * the answers say so of its own cards alone: for it a card that it does not have does not exist. What it
 * tries then are objects of NV50_P2P (alloc.c) and peers of nvidia-uvm (uvm/peers.c), which are served to
 * the same containers, since a yes here and a no later ends libcuda and NCCL (google/gvisor#9827, #9372).
 *
 * A container of one card, MIG instances and drivers whose NV50_P2P is not known are answered without the
 * driver, in the words of cards that have no such ways: then libraries go through the host by themselves. So
 * are all that ask for memory of several cards or of an NVLink fabric. */
#include "control.h"
#include "native_sched/nvidia/rm/peers_abi.h"
#include "view.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { CLASSES_MAX = 1024 };

bool peers_are_served(const struct call *c)
{
    uint32_t whole = 0;

    for (uint32_t i = 0; i < c->m->cards; i++)
        whole += c->tenant->granted[c->m->card[i].index] && c->m->card[i].gpu_instance == RM_NO_INSTANCE;
    return whole > 1 && rm_class_row(&c->m->rm, NV50_P2P);
}

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

/* The rest of the parameters are numbers that cards have for each other. */
int control_p2p_caps(struct call *c, uint32_t *status)
{
    struct rm_p2p_caps *caps = (void *)c->params;

    *status = is_client(c) ? NV_OK : NV_ERR_INVALID_CLIENT;
    if (*status == NV_OK &&
        (!caps->count || caps->count > RM_MAX_CARDS || !all_granted(c, caps->gpu_id, caps->count)))
        *status = NV_ERR_INVALID_ARGUMENT;
    if (*status)
        return 0;
    if (peers_are_served(c))
        return call_driver(c);
    caps->caps = caps->read_engines = caps->write_engines = 0;
    memset(caps->status, RM_P2P_NOT_SUPPORTED, sizeof(caps->status));
    memset(c->params + RM_P2P_LISTS_AT, RM_P2P_NO_PEER, c->params_bytes - RM_P2P_LISTS_AT);
    return 0;
}

/* The same, with the lists where the caller says. The newer control has them behind its parameters. */
int control_p2p_caps_lists(struct call *c, uint32_t *status)
{
    enum { LISTS_MAX = 2, LIST_BYTES = RM_MAX_CARDS * RM_MAX_CARDS * sizeof(uint32_t) };
    struct rm_control *ctl = (void *)c->outer;
    const uint32_t cmd = ctl->cmd, bytes = c->params_bytes;
    const uint32_t lists = bytes < RM_P2P_POINTERS_AT
                               ? 0
                               : (bytes - RM_P2P_POINTERS_AT) / (uint32_t)sizeof(uint64_t);
    uint64_t at[LISTS_MAX] = {0};
    uint32_t count;
    int e;

    if (lists > LISTS_MAX) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    memcpy(at, c->params + RM_P2P_POINTERS_AT, lists * sizeof(*at));
    ctl->cmd = NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2;
    ctl->params_size = c->params_bytes = RM_P2P_LISTS_AT + lists * LIST_BYTES;
    e = control_p2p_caps(c, status);
    ctl->cmd = cmd;
    ctl->params_size = c->params_bytes = bytes;
    count = ((const struct rm_p2p_caps *)(const void *)c->params)->count;
    for (uint32_t i = 0; i < lists && e == 0 && *status == NV_OK; i++)
        if (at[i] && !caller_waits(c->caller))
            e = -EINTR;
        else if (at[i])
            e = caller_write_both(c->caller, at[i], c->params + RM_P2P_LISTS_AT + i * LIST_BYTES,
                                  count * count * sizeof(uint32_t), 0, NULL, 0);
    memcpy(c->params + RM_P2P_POINTERS_AT, at, lists * sizeof(*at));
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
    if (*status == NV_OK && peers_are_served(c))
        return call_driver(c);
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

static bool of_subdevice(struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    WITH_TENANT(c->tenant);

    return call_find_kind(c, ctl->client, ctl->object, RM_KIND_SUBDEVICE);
}

int control_no_fabric(struct call *c, uint32_t *status)
{
    if (!of_subdevice(c))
        *status = NV_ERR_INVALID_OBJECT_HANDLE;
    memset(c->params, 0, c->params_bytes);
    return 0;
}

/* RM's id of the card at the other end (gpuGenerate32BitId()). */
static uint32_t id_of(const struct rm_link_device *remote)
{
    return remote->domain << 16 | (uint32_t)(remote->bus & 0xff) << 8 | (remote->device & 0xff);
}

/* A link to a card that is not the tenant's is shown as connected to nothing. The parameters of the
 * control about what links can do have no links, and are shorter than one. */
static void hide_links(struct call *c)
{
    uint32_t bytes = rm_bytes(&c->m->rm, RM_BYTES_NV2080_CTRL_NVLINK_LINK_STATUS_INFO);
    uint32_t at = c->m->rm.version < RM_VERSION(580, 65) ? offsetof(struct rm_links_v535, link)
                                                         : offsetof(struct rm_links, link);
    uint32_t remote_at = c->m->rm.version < RM_VERSION(555, 42) ? offsetof(struct rm_link_v535, remote)
                                                                : offsetof(struct rm_link, remote);
    const struct rm_link_device none = {.type = RM_LINK_TO_NOTHING};

    for (; at + bytes <= c->params_bytes; at += bytes) {
        struct rm_link_device *remote = (void *)(c->params + at + remote_at);

        if (remote->type != RM_LINK_TO_GPU || granted_gpu(c, id_of(remote)))
            continue;
        memset(c->params + at, 0, bytes);
        *remote = none;
    }
}

int control_links(struct call *c, uint32_t *status)
{
    int e;

    if (!of_subdevice(c) || !peers_are_served(c))
        return control_no_fabric(c, status);
    e = call_driver(c);
    if (e == 0 && *status == NV_OK)
        hide_links(c);
    return e;
}

static bool is_listed(const struct call *c, uint32_t class_id)
{
    const struct rm_row *row = rm_class_row(NULL, class_id);

    return class_id == NV50_P2P ? peers_are_served(c)
                                : !row || !row->unlisted || (row->whole && c->tenant->whole);
}

static uint32_t without_unlisted(const struct call *c, uint32_t *list, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (is_listed(c, list[i]))
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
        classes->count = without_unlisted(c, classes->list, classes->count);
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
    theirs->count = without_unlisted(c, ours, theirs->count < CLASSES_MAX ? theirs->count : CLASSES_MAX);
    if (!request.list)
        return 0;
    if (request.count < theirs->count)
        *status = NV_ERR_INVALID_PARAM_STRUCT;
    else if (caller_waits(c->caller))
        e = caller_write_both(c->caller, request.list, ours, theirs->count * sizeof(*ours), 0, NULL, 0);
    return e;
}
