/* MAP_MEMORY and UNMAP_MEMORY: a view of an object that the tenant has made, through an fd of its own. */
#include "../base/scoped.h"
#include "caught.h"
#include <errno.h>

static bool own_object(struct call *c, uint32_t client, uint32_t handle)
{
    WITH_TENANT(c->tenant);

    return call_find(c, client, handle);
}

int mediate_map(struct call *c)
{
    struct rm_map_memory *map = (void *)c->outer;
    scoped_fd int reply = -1;
    struct open_file target;
    int e;

    if (!own_object(c, map->client, map->memory) || !own_object(c, map->client, map->device)) {
        map->status = NV_ERR_INVALID_OBJECT_HANDLE;
        return 0;
    }
    if (c->m->ops->identify(c->m->driver, c->caller, c->tenant, map->fd, &target) < 0)
        return -EINVAL;
    if ((e = call_driver_with(c, &target, &reply)) < 0 || map->status != NV_OK || reply < 0)
        return e;
    /* After this the fd is no file of the driver's any more: whoever goes on with the call must not begin anew. */
    caught_done(c, 0);
    return caller_replace_fd(c->caller, map->fd, reply);
}

/* The caller unmaps its own pages; what the driver keeps of them ends with the object. */
int mediate_unmap(struct call *c)
{
    struct rm_unmap_memory *unmap = (void *)c->outer;

    if (!own_object(c, unmap->client, unmap->memory)) {
        unmap->status = NV_ERR_INVALID_OBJECT_HANDLE;
        return 0;
    }
    return call_driver(c);
}
