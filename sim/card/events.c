/* Events: objects that wake who waits on an open file. The file is told first, by a client and a number
 * (ALLOC_OS_EVENT), and an event names it by both. */
#include "rm.h"
#include <stdlib.h>

struct os_event {
    struct os_event *next;
    uint64_t file;
    uint32_t client, fd;
};

static struct os_event **os_event_find(struct rm *rm, uint32_t client, uint32_t fd)
{
    struct os_event **at = &rm->os_events;

    while (*at && ((*at)->client != client || (*at)->fd != fd))
        at = &(*at)->next;
    return at;
}

static void os_event_remove(struct os_event **at)
{
    struct os_event *event = *at;

    *at = event->next;
    free(event);
}

/* The driver looks neither at the caller nor at whose client it is. */
int os_event_alloc(struct rm_call *call)
{
    struct rm_os_event *request = call->outer;
    struct os_event **end = os_event_find(call->rm, request->client, request->fd);

    request->status = NV_ERR_INSUFFICIENT_RESOURCES;
    if (*end || !(*end = calloc(1, sizeof **end)))
        return 0;
    (*end)->file = call->file->id;
    (*end)->client = request->client;
    (*end)->fd = request->fd;
    request->status = NV_OK;
    return 0;
}

int os_event_free(struct rm_call *call)
{
    struct rm_os_event *request = call->outer;
    struct os_event **at = os_event_find(call->rm, request->client, request->fd);

    request->status = *at ? NV_OK : NV_ERR_INVALID_EVENT;
    if (*at)
        os_event_remove(at);
    return 0;
}

void os_events_end(struct rm *rm, uint64_t file, uint32_t client)
{
    for (struct os_event **at = &rm->os_events; *at;)
        if ((file && (*at)->file == file) || (client && (*at)->client == client))
            os_event_remove(at);
        else
            at = &(*at)->next;
}

uint32_t event_alloc(struct rm_call *call, struct rm_object *object)
{
    const struct rm_event *event = call->params;
    uint32_t own = object->client->root.handle, client = event->client ? event->client : own;
    const struct rm_object *source;

    if (!object_find(call->rm, client, client))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    source = object_find(call->rm, client, event->source);
    if (source && source->class_id == NV01_DEVICE_0)
        return NV_ERR_INVALID_OBJECT; /* it tells of nothing */
    return *os_event_find(call->rm, own, (uint32_t)event->data) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

/* Of what a subdevice tells, to events below it: none is ever told of. */
uint32_t set_notification(const struct rm_request *request)
{
    enum { NUMBERS = 193, SINGLE = 1, REPEAT = 2 };
    const struct {
        uint32_t number, action;
    } *asked = request->params;

    if (asked->number >= NUMBERS || asked->action > REPEAT)
        return NV_ERR_INVALID_ARGUMENT;
    for (const struct rm_object *child = request->object->child; child; child = child->next)
        if (child->class_id == NV01_EVENT_OS_EVENT && asked->action != SINGLE)
            return NV_OK;
    return NV_ERR_INVALID_STATE;
}
