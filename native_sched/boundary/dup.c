/* DUP_OBJECT and SHARE: a second name for memory of the same tenant, through any of its clients. Another tenant's object
 * and one that does not exist get the same answer. */
#include "caught.h"
#include "create.h"
#include <errno.h>

/* Where the new name goes and what it stands for. RM_OK or another RM status. The tenant is held. */
static uint32_t find_both(const struct call *c, const struct rm_dup *d, uint32_t *parent, uint32_t *source)
{
    const struct objects *o = &c->tenant->objects;

    if (!call_find(c, d->client, d->client))
        return RM_ERR_INVALID_CLIENT;
    if (!(*parent = call_find(c, d->client, d->parent)))
        return RM_ERR_INVALID_OBJECT_PARENT;
    if (!(*source = objects_find(o, d->source_client, d->source_handle)))
        return RM_ERR_INSUFFICIENT_PERMISSIONS;
    if (!class_is_memory(o->slot[*source].class_id))
        return RM_ERR_NOT_SUPPORTED;
    /* What is charged to one card is not to be had on another. */
    if (o->slot[*source].card != o->slot[*parent].card)
        return RM_ERR_INVALID_OBJECT_PARENT;
    return RM_OK;
}

int mediate_dup(struct call *c)
{
    struct rm_dup *d = (void *)c->outer;
    struct tenant *t = c->tenant;
    uint32_t parent, source;
    int e;

    WITH_CALLS_OF(t);
    {
        WITH_TENANT(t);
        if ((d->status = find_both(c, d, &parent, &source)) ||
            (d->status = choose_handle(t, d->client, &d->handle)))
            return 0;
    }
    caught_intend(c, INTENT_MAKE, &c->file, d->client, d->parent, d->handle);
    /* Slots do not change meanwhile: what makes and ends objects holds the tenant's calls. */
    if ((e = call_driver(c)) < 0 || d->status != RM_OK)
        return e;
    {
        WITH_TENANT(t);
        e = book_alias(t, parent, source, d->client, d->handle);
    }
    if (e < 0) {
        unmake(c, d->client, d->parent, d->handle);
        d->status = RM_ERR_NO_MEMORY;
        stats_refused(&t->stats, d->status);
    }
    return 0;
}

/* Only with another client of the same tenant: who may dup is then known by name. */
int mediate_share(struct call *c)
{
    struct rm_share *s = (void *)c->outer;

    {
        WITH_TENANT(c->tenant);
        if (!call_find(c, s->client, s->handle)) {
            s->status = RM_ERR_INVALID_OBJECT_HANDLE;
            return 0;
        }
        if (s->type != RM_SHARE_TYPE_CLIENT || !objects_find(&c->tenant->objects, s->target, s->target)) {
            s->status = RM_ERR_INSUFFICIENT_PERMISSIONS;
            return 0;
        }
    }
    return call_driver(c);
}
