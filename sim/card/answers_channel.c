/* The controls that ask about channels and what is on them. */
#include "../../rm/lists.h"
#include "rm.h"
#include <string.h>

/* Its first word names a channel. */
uint32_t of_channel(const struct rm_request *request)
{
    const uint32_t *channel = request->params;

    return object_find(request->rm, request->object->client->root.handle, *channel) ? NV_OK
                                                                                    : NV_ERR_OBJECT_NOT_FOUND;
}

/* The channel's number on its runlist, which is what rings its doorbell too. */
uint32_t work_token(const struct rm_request *request)
{
    *(uint32_t *)request->params = request->object->handle & 0xffff;
    return NV_OK;
}

uint32_t channel_numbers(const struct rm_request *request)
{
    uint32_t count, *handles = request_list(request, sizeof *handles, 0, &count);
    uint32_t *numbers = request_list(request, sizeof *numbers, 1, &count);

    if (!handles || !numbers)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = handles[i] & 0xffff;
    return NV_OK;
}

uint32_t class_engine(const struct rm_request *request)
{
    struct {
        uint32_t object, class_engine, class_id, engine;
    } *out = request->params;
    const struct rm_object *object = object_find(request->rm, request->object->client->root.handle,
                                                 out->object);

    if (!object)
        return NV_ERR_OBJECT_NOT_FOUND;
    out->class_id = out->class_engine = object->class_id;
    out->engine = RM_ENGINE_GRAPHICS;
    return NV_OK;
}
