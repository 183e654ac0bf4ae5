#include "shared.h"

/* All on the same card, or the same instance of one, are all clients here: nothing is duplicated to another
 * card. */
static bool is_for_all(const struct rm_share_policy *p)
{
    return (p->type == RM_SHARE_TYPE_ALL || p->type == RM_SHARE_TYPE_GPU ||
            p->type == RM_SHARE_TYPE_PARTITION) &&
           !(p->action & RM_SHARE_REQUIRE) && p->access_mask & RM_SHARE_ACCESS_DUP;
}

struct rm_share_policy shared_for_rm(const struct rm_share_policy *request)
{
    struct rm_share_policy told = *request;

    if (!is_for_all(request))
        return told;
    told.access_mask &= ~(uint32_t)RM_SHARE_ACCESS_DUP;
    if (!told.access_mask) {
        told.type = RM_SHARE_TYPE_NONE;
        told.access_mask = RM_SHARE_ACCESS_DUP;
    }
    return told;
}

uint32_t shared_client(const struct call *c, uint32_t client, struct open_file *out)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t root = objects_find(o, client, client);

    assert_held(&c->tenant->lock);
    if (!root || !files_by_id(c->m->files, o->slot[root].file, out))
        return NV_ERR_INVALID_CLIENT;
    return o->slot[root].owner.tgid == caller_tgid(c->caller) ? NV_OK : NV_ERR_INSUFFICIENT_PERMISSIONS;
}

int shared_tell(const struct mediator *m, const struct open_file *file, uint32_t client, uint32_t handle,
                const struct rm_share_policy *policy)
{
    struct rm_share s = {.client = client, .handle = handle, .policy = *policy};
    int e = mediator_call(m, file, NULL, RM_CMD(NV_ESC_RM_SHARE, sizeof(s)), &s, sizeof(s));

    return e < 0 || !s.status ? e : rm_refusal(s.status);
}

static int tell_everybody(const struct mediator *m, const struct open_file *file, uint32_t client,
                          uint32_t handle, uint8_t action)
{
    const struct rm_share_policy everybody = {
        .access_mask = RM_SHARE_ACCESS_DUP,
        .type = RM_SHARE_TYPE_ALL,
        .action = RM_SHARE_COMPOSE | action,
    };

    return shared_tell(m, file, client, handle, &everybody);
}

int shared_lend(struct call *c, const struct open_file *file, uint32_t client, uint32_t handle)
{
    c->asked = true;
    return tell_everybody(c->m, file, client, handle, 0);
}

int shared_take_back(const struct mediator *m, const struct open_file *file, uint32_t client, uint32_t handle)
{
    return tell_everybody(m, file, client, handle, RM_SHARE_REVOKE);
}

static uint32_t above(const struct objects *o, uint32_t slot)
{
    while (slot && !(o->slot[slot].shared & SHARED_SAID))
        slot = o->slot[slot].parent;
    return slot;
}

/* A list of its own begins as that of the object above, or empty. */
void shared_note(struct objects *o, uint32_t slot, const struct rm_share_policy *request)
{
    uint32_t from = above(o, slot), shared = SHARED_SAID;

    if (request->action & RM_SHARE_COMPOSE && from)
        shared |= o->slot[from].shared;
    if (is_for_all(request) && request->action & RM_SHARE_REVOKE)
        shared &= ~(uint32_t)SHARED_WITH_ALL;
    else if (is_for_all(request))
        shared |= SHARED_WITH_ALL;
    __atomic_store_n(&o->slot[slot].shared, shared, __ATOMIC_RELEASE);
}

bool shared_with_all(const struct objects *o, uint32_t slot)
{
    uint32_t from = above(o, slot);

    return from && o->slot[from].shared & SHARED_WITH_ALL;
}
