/* DUP_OBJECT and SHARE: a second name for memory of the same tenant, through any of its clients, and on whole
 * cards for a channel group, in which clients of MPS make channels. Another tenant's object and one that does
 * not exist get the same answer. */
#include "control.h"
#include "create.h"
#include "handlers.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/objects/shared.h"
#include <errno.h>

bool may_have_name(const struct objects *o, uint32_t source, uint32_t parent)
{
    /* What is charged to one card is not to be had on another. */
    return o->slot[source].card == o->slot[parent].card ||
           rm_kind_of(o->slot[source].class_id) == RM_KIND_HOST_MEMORY;
}

static bool may_have_names(const struct tenant *t, uint32_t class_id)
{
    return rm_class_has_names(class_id) || rm_kind_of(class_id) == RM_KIND_VASPACE ||
           (t->whole && rm_kind_of(class_id) == RM_KIND_GROUP);
}

/* Where the new name goes and what it stands for. NV_OK or another RM status. */
static uint32_t find_both(const struct call *c, const struct rm_dup *d, uint32_t *parent, uint32_t *source)
{
    const struct objects *o = &c->tenant->objects;

    assert_held(&c->tenant->lock);
    if (!call_find(c, d->client, d->client))
        return NV_ERR_INVALID_CLIENT;
    if (!(*parent = call_find(c, d->client, d->parent)))
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (!(*source = objects_find(o, d->source_client, d->source_handle)))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (!may_have_names(c->tenant, o->slot[*source].class_id))
        return NV_ERR_NOT_SUPPORTED;
    return may_have_name(o, *source, *parent) ? NV_OK : NV_ERR_INVALID_OBJECT_PARENT;
}

/* The file of the source's client, where the source is shared with all clients; false: RM decides. */
static bool shared_on(const struct mediator *m, struct tenant *t, const struct rm_dup *d,
                      struct open_file *file)
{
    const struct objects *o = &t->objects;
    WITH_TENANT(t);
    uint32_t source = objects_find(o, d->source_client, d->source_handle);

    return source && shared_with_all(o, source) &&
           files_by_id(m->files, o->slot[objects_root(o, source)].file, file);
}

static int share_with_it(const struct mediator *m, const struct open_file *file, const struct rm_dup *d,
                         uint8_t action)
{
    const struct rm_share_policy this_client = {
        .target = d->client,
        .access_mask = RM_SHARE_ACCESS_DUP,
        .type = RM_SHARE_TYPE_CLIENT,
        .action = RM_SHARE_COMPOSE | action,
    };

    return shared_tell(m, file, d->source_client, d->source_handle, &this_client);
}

void dup_undo_share(const struct mediator *m, struct tenant *t, const struct rm_dup *d)
{
    struct open_file file;

    if (shared_on(m, t, d, &file))
        share_with_it(m, &file, d, RM_SHARE_REVOKE);
}

/* RM was told of no share with all clients (shared.h), so the source is shared with this client while RM is
 * asked. */
static int duplicate(struct call *c)
{
    struct rm_dup *d = (void *)c->outer;
    struct open_file file;
    int e = call_driver(c);

    if (e < 0 || d->status != NV_ERR_INSUFFICIENT_PERMISSIONS || !shared_on(c->m, c->tenant, d, &file))
        return e;
    if ((e = share_with_it(c->m, &file, d, 0)) < 0)
        return rm_refused(e) ? 0 : e;
    e = call_driver(c);
    share_with_it(c->m, &file, d, RM_SHARE_REVOKE);
    return e;
}

struct answer mediate_dup(struct call *c)
{
    struct rm_dup *d = (void *)c->outer;
    struct tenant *t = c->tenant;
    uint32_t parent, source, status;
    struct creation made;
    int e;

    WITH_CALLS_OF(t);
    {
        WITH_TENANT(t);
        if ((status = find_both(c, d, &parent, &source)) ||
            (status = choose_handle(t, d->client, &d->handle)))
            return answered(status);
    }
    inflight_intend(c, INTENT_MAKE, &c->file, d->client, d->parent, d->handle);
    /* Slots do not change meanwhile: what makes and ends objects holds the tenant's calls. */
    if ((e = duplicate(c)) < 0 || d->status != NV_OK)
        return driver_answer(e, d->status);
    {
        WITH_TENANT(t);
        e = object_add_alias(t, parent, source, d->client, d->handle);
        made = (struct creation){d->client, d->parent, d->handle, t->objects.slot[source].class_id, false};
    }
    if (e == 0 && (e = object_announce(c, &c->file, &made)) < 0) {
        WITH_TENANT(t);
        object_drop(t, call_find(c, d->client, d->handle));
    }
    if (e < 0) {
        object_roll_back(c, d->client, d->parent, d->handle);
        stats_refused(&t->stats, NV_ERR_NO_MEMORY);
        return answered(NV_ERR_NO_MEMORY);
    }
    return answered(NV_OK);
}

/* A client that is named is one of the tenant's. */
static bool may_share(const struct objects *o, const struct rm_share_policy *p)
{
    return p->type != RM_SHARE_TYPE_CLIENT || objects_find(o, p->target, p->target);
}

/* Rights to duplicate, and to whom is the tenant's to say: RM's list and ours change in the same order. */
struct answer mediate_share(struct call *c)
{
    struct rm_share *s = (void *)c->outer;
    const struct rm_share_policy request = s->policy;
    struct tenant *t = c->tenant;
    uint32_t slot;
    int e;

    WITH_CALLS_OF(t);
    {
        WITH_TENANT(t);
        if (!(slot = call_find(c, s->client, s->handle)))
            return answered(NV_ERR_INVALID_OBJECT_HANDLE);
        if (!may_share(&t->objects, &request) ||
            (request.type != RM_SHARE_TYPE_CLIENT && request.access_mask != RM_SHARE_ACCESS_DUP))
            return answered(NV_ERR_INSUFFICIENT_PERMISSIONS);
    }
    s->policy = shared_for_rm(&request);
    e = call_driver(c);
    s->policy = request;
    WITH_TENANT(t);
    if (e == 0 && s->status == NV_OK)
        shared_note(&t->objects, slot, &request);
    return driver_answer(e, s->status);
}

/* The same for all that the client has and is not shared by itself. */
int control_inherited_share(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    struct rm_share_policy *p = (void *)c->params, request = *p;
    struct tenant *t = c->tenant;
    uint32_t slot;
    int e;

    WITH_CALLS_OF(t);
    {
        WITH_TENANT(t);
        if (!(slot = call_find(c, ctl->client, ctl->client))) {
            *status = NV_ERR_INVALID_CLIENT;
            return 0;
        }
        if (!may_share(&t->objects, &request)) {
            *status = NV_ERR_INSUFFICIENT_PERMISSIONS;
            return 0;
        }
    }
    *p = shared_for_rm(&request);
    e = call_driver(c);
    *p = request;
    WITH_TENANT(t);
    if (e == 0 && ctl->status == NV_OK && ctl->object == ctl->client)
        shared_note(&t->objects, slot, &request);
    return e;
}
