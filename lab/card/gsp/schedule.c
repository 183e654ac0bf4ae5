/* What NVIDIA's comments promise of the controls that schedule (ctrla06c.h, ctrla06f.h, ctrl2080fifo.h), done
 * by the engines. No firmware was asked: it is all made up. */
#include "../../../base/clock.h"
#include "../../../native_sched/nvidia/rm/rm_abi.h"
#include "engines.h"
#include <string.h>
#include <time.h>

enum { WAIT_MAX_NS = 1000000000 }; /* the socket's other end waits five seconds for a register */

bool schedule_has(uint32_t number)
{
    return number == NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS || number == NVA06F_CTRL_CMD_GPFIFO_SCHEDULE ||
           (number >= NVA06C_CTRL_CMD_GPFIFO_SCHEDULE && number <= NVA06C_CTRL_CMD_PREEMPT &&
            number != NVA06C_CTRL_CMD_GPFIFO_SCHEDULE + 1);
}

/* The answer comes when it is so. */
static void wait_off(struct card *card, uint64_t off_ns)
{
    uint64_t now_ns = monotonic_ns(), most_ns = now_ns + WAIT_MAX_NS;
    struct timespec until;

    off_ns = off_ns < most_ns ? off_ns : most_ns;
    if (off_ns > now_ns) {
        until = (struct timespec){(time_t)(off_ns / 1000000000u), (long)(off_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    gpu_refresh(card->gpu);
}

static uint32_t disable_channels(struct objects *objects, const struct rm_disable_channels *asked)
{
    struct gpu_channel *channels[RM_MAX_DISABLE];
    struct gpu *gpu = objects->card->gpu;
    uint32_t count = 0;

    if (asked->count > RM_MAX_DISABLE)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < asked->count; i++) {
        const struct object *object = object_find(objects,
                                                  (struct name){asked->client[i], asked->channel[i]});

        if (!object)
            return NV_ERR_OBJECT_NOT_FOUND;
        if (object->channel)
            channels[count++] = object->channel;
    }
    if (asked->disable)
        wait_off(objects->card, gpu_channels_off(gpu, channels, count));
    else
        gpu_channels_on(gpu, channels, count);
    return NV_OK;
}

static uint32_t schedule(struct objects *objects, struct gpu_group *group, bool enable)
{
    if (enable)
        gpu_group_enable(group);
    else
        wait_off(objects->card, gpu_group_disable(group));
    return NV_OK;
}

static uint32_t set_timeslice(struct gpu_group *group, uint64_t timeslice_us)
{
    if (timeslice_us > GPU_MAX_TIMESLICE_US)
        return NV_ERR_INVALID_ARGUMENT;
    gpu_group_set_timeslice(group, (uint32_t)timeslice_us);
    return NV_OK;
}

static uint32_t preempt(struct objects *objects, struct gpu_group *group, const struct rm_tsg_preempt *asked)
{
    uint64_t off_ns = gpu_group_preempt(group);

    if (asked->wait)
        wait_off(objects->card, off_ns);
    return NV_OK;
}

static uint32_t least_bytes(uint32_t number)
{
    switch (number) {
    case NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS:
        return sizeof(struct rm_disable_channels);
    case NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:
    case NVA06F_CTRL_CMD_GPFIFO_SCHEDULE:
        return 1;
    default:
        return sizeof(uint64_t);
    }
}

uint32_t schedule_control(struct objects *objects, struct name name, uint32_t number, uint8_t *params,
                          uint32_t bytes)
{
    struct object *object = object_find(objects, name);
    struct gpu_group *group = object && object->in_group ? object->in_group->group
                              : object                   ? object->group
                                                         : NULL;
    uint64_t value = 0;

    if (bytes < least_bytes(number))
        return NV_ERR_INVALID_ARGUMENT;
    if (number == NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS)
        return disable_channels(objects, (const struct rm_disable_channels *)(const void *)params);
    if (!group)
        return NV_ERR_INVALID_OBJECT_HANDLE;
    switch (number) {
    case NVA06C_CTRL_CMD_GPFIFO_SCHEDULE:
    case NVA06F_CTRL_CMD_GPFIFO_SCHEDULE:
        return schedule(objects, group, params[0]);
    case NVA06C_CTRL_CMD_SET_TIMESLICE:
        memcpy(&value, params, sizeof value);
        return set_timeslice(group, value);
    case NVA06C_CTRL_CMD_GET_TIMESLICE:
        value = gpu_group_timeslice_us(group);
        memcpy(params, &value, sizeof value);
        return NV_OK;
    default:
        return preempt(objects, group, (const struct rm_tsg_preempt *)(const void *)params);
    }
}
