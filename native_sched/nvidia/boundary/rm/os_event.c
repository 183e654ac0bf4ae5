/* What the driver wakes for an event of RM's: an open file, which it knows by a client and a number.
 * The number is the descriptor that the caller has of it, and nothing is looked up by it
 * (allocate_os_event() in osapi.c). RM takes the name of any client here, and that client could set no event
 * of that number then. */
#include "handlers.h"
#include "native_sched/nvidia/boundary/call/inflight.h"

struct answer mediate_os_event(struct call *c)
{
    const struct rm_os_event *event = (const void *)c->outer;
    bool own;
    int e;

    WITH_CALLS_OF(c->tenant);
    {
        WITH_TENANT(c->tenant);
        own = objects_find(&c->tenant->objects, event->client, event->client);
    }
    if (!own)
        return answered(NV_ERR_INVALID_CLIENT);
    inflight_intend(c, INTENT_OS_EVENT, &c->file, event->client, 0, event->fd);
    e = call_driver(c);
    return driver_answer(e, event->status);
}

void os_event_undo(const struct mediator *m, const struct open_file *file, uint32_t client, uint32_t fd)
{
    struct rm_os_event event = {.client = client, .fd = fd};

    mediator_call(m, file, NULL, RM_CMD(NV_ESC_FREE_OS_EVENT, sizeof(event)), &event, sizeof(event));
}
