/* MAP_MEMORY and UNMAP_MEMORY: a view of an object that the tenant has made, through an fd of its own. For
 * the caller's own thread both are what they are by their number, whatever becomes of their arguments: it
 * maps and unmaps what its own client has. */
#include "base/scoped.h"
#include "handlers.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include <errno.h>

static bool own_object(struct call *c, uint32_t client, uint32_t handle)
{
    WITH_TENANT(c->tenant);

    return call_find(c, client, handle);
}

struct answer mediate_map(struct call *c)
{
    const struct rm_map_memory *map = (const void *)c->outer;
    scoped_fd int reply = -1;
    struct open_file target;
    int e;

    if (!own_object(c, map->client, map->memory) || !own_object(c, map->client, map->device))
        return answered(NV_ERR_INVALID_OBJECT_HANDLE);
    if (c->m->ops->identify(c->m->driver, c->caller, c->tenant, map->fd, &target) < 0)
        return failed(-EINVAL);
    if (call_is_callers(c))
        return continued();
    if ((e = call_driver_with(c, &target, &reply)) < 0 || map->status != NV_OK || reply < 0)
        return driver_answer(e, map->status);
    /* From here on the fd is no file of the driver's: the next mgpud must not make the call anew. */
    inflight_done(c);
    return driver_answer(caller_replace_fd(c->caller, map->fd, reply), NV_OK);
}

/* The caller unmaps its own pages; what the driver keeps of them ends with the object. */
struct answer mediate_unmap(struct call *c)
{
    const struct rm_unmap_memory *unmap = (const void *)c->outer;
    int e;

    if (!own_object(c, unmap->client, unmap->memory))
        return answered(NV_ERR_INVALID_OBJECT_HANDLE);
    if (call_is_callers(c))
        return continued();
    e = call_driver(c);
    return driver_answer(e, unmap->status);
}
