#include "../../native_sched/nvidia/rm/lists.h"
#include "rm.h"
#include "wait.h"

/* The caller learns that something is off the engine when it is, and so does the status page. As with every
 * call, all others wait behind the RM lock meanwhile. */
static void wait_off(const struct sim_card *card, uint64_t off_ns)
{
    wait_until(off_ns);
    gpu_refresh(card->gpu);
}

static struct gpu_group *group_of(const struct rm_object *object)
{
    return class_is_channel(object->class_id) ? object->parent->group : object->group;
}

/* kchannelIsSchedulable() of every channel, whatever is asked (kchangrpapiCtrlCmdGpFifoSchedule_IMPL()). */
static bool is_schedulable(const struct rm_object *group)
{
    for (const struct rm_object *object = group->child; object; object = object->next)
        if (class_is_channel(object->class_id) && object->uvms && !object->bound)
            return false;
    return true;
}

uint32_t tsg_schedule(const struct rm_request *request)
{
    const struct rm_tsg_schedule *params = request->params;
    const struct rm_object *object = request->object;
    struct gpu_group *group = group_of(object);

    if (!is_schedulable(class_is_channel(object->class_id) ? object->parent : object))
        return NV_ERR_INVALID_STATE;
    if (params->enable)
        gpu_group_enable(group);
    else if (!request->rm->disables_channels)
        wait_off(request->card, gpu_group_disable(group));
    /* Else its work runs on, as on an H200 with 580.159.04. */
    return NV_OK;
}

uint32_t tsg_set_timeslice(const struct rm_request *request)
{
    const struct rm_tsg_timeslice *params = request->params;

    if (params->timeslice_us > GPU_MAX_TIMESLICE_US)
        return NV_ERR_INVALID_ARGUMENT;
    gpu_group_set_timeslice(request->object->group, (uint32_t)params->timeslice_us);
    return NV_OK;
}

uint32_t tsg_get_timeslice(const struct rm_request *request)
{
    struct rm_tsg_timeslice *params = request->params;

    params->timeslice_us = gpu_group_timeslice_us(request->object->group);
    return NV_OK;
}

/* Of low, medium and high; here each group has its timeslice and no more. */
uint32_t tsg_set_interleave(const struct rm_request *request)
{
    enum { HIGH = 2 };

    return *(const uint32_t *)request->params > HIGH ? NV_ERR_INVALID_ARGUMENT : NV_OK;
}

uint32_t tsg_preempt(const struct rm_request *request)
{
    static const uint32_t max_timeout_us = 1000000;
    const struct rm_tsg_preempt *params = request->params;
    uint64_t off_ns;

    if (params->manual_timeout && params->timeout_us > max_timeout_us)
        return NV_ERR_INVALID_ARGUMENT;
    off_ns = gpu_group_preempt(request->object->group);
    if (params->wait)
        wait_off(request->card, off_ns);
    return NV_OK;
}

uint32_t tsg_info(const struct rm_request *request)
{
    struct rm_tsg_info *params = request->params;

    params->tsg_id = gpu_group_tsg(request->object->group);
    return NV_OK;
}

/* Which other clients the driver's firmware accepts is not known: here the caller's own. */
static uint32_t channel_named(const struct rm_request *request, uint32_t client, uint32_t handle,
                              struct rm_object **channel)
{
    struct rm_object *object;

    if (client != request->object->client->root.handle)
        return NV_ERR_INVALID_CLIENT;
    object = object_find(request->rm, client, handle);
    if (!object)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (!class_is_channel(object->class_id) || object->card != request->card)
        return NV_ERR_INVALID_OBJECT_HANDLE;
    *channel = object;
    return NV_OK;
}

uint32_t disable_channels(const struct rm_request *request)
{
    const struct rm_disable_channels *params = request->params;
    struct gpu_channel *channels[RM_MAX_DISABLE];
    uint32_t count = 0;

    if (!request->rm->disables_channels)
        return NV_ERR_NOT_SUPPORTED;
    if (params->count > RM_MAX_DISABLE)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < params->count; i++) {
        struct rm_object *object;
        uint32_t status = channel_named(request, params->client[i], params->channel[i], &object);

        if (status)
            return status;
        if (object->channel)
            channels[count++] = object->channel;
    }
    if (params->disable)
        wait_off(request->card, gpu_channels_off(request->card->gpu, channels, count));
    else
        gpu_channels_on(request->card->gpu, channels, count);
    return NV_OK;
}

static bool draws(const struct rm_object *object)
{
    bool any = rm_kind_of(object->class_id) == RM_KIND_GRAPHICS;

    for (const struct rm_object *below = object->child; below && !any; below = below->next)
        any = draws(below);
    return any;
}

/* A context that draws is not preempted between instructions (seen on an H200). */
uint32_t preemption_mode(const struct rm_request *request)
{
    const struct rm_preemption_mode *mode = request->params;
    const struct rm_object *of = object_find(request->rm, request->object->client->root.handle,
                                             mode->channel);

    return of && mode->flags & RM_PREEMPTION_SETS_COMPUTE && mode->compute == RM_PREEMPTION_BY_INSTRUCTION &&
                   draws(of)
               ? NV_ERR_INVALID_REQUEST
               : NV_OK;
}

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
