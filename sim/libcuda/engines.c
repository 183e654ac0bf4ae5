#include "engines.h"
#include "../../base/mutex.h"
#include "../../native_sched/nvidia/rm/channel.h"
#include <stdlib.h>
#include <unistd.h>

enum { VASPACE_PARAMS_BYTES = 56, PAGE_BYTES = 4096 };

static const uint32_t engine_types[SIM_ENGINES] = {
    [SIM_ENGINE_GRAPHICS] = RM_ENGINE_GRAPHICS,
    [SIM_ENGINE_COPY] = RM_ENGINE_COPY0,
};

static uint32_t group_make(struct engines *engines, enum sim_engine_index engine)
{
    union rm_channel_group_params params = {
        .group = {.vaspace = engines->vaspace, .engine_type = engine_types[engine]},
    };

    return rmc_alloc(engines->rm, engines->card->device, &engines->group[engine], KEPLER_CHANNEL_GROUP_A,
                     &params, sizeof params);
}

static uint32_t first_objects(struct engines *engines)
{
    char vaspace[VASPACE_PARAMS_BYTES] = {0};
    uint32_t status = rmc_alloc(engines->rm, engines->card->device, &engines->vaspace, FERMI_VASPACE_A,
                                vaspace, sizeof vaspace);

    return status ? status : group_make(engines, SIM_ENGINE_GRAPHICS);
}

struct engines *engines_make(const struct rmc *rm, const struct rmc_card *card, CUresult *error)
{
    struct engines *engines = calloc(1, sizeof *engines);
    uint32_t status;

    *error = CUDA_ERROR_OUT_OF_MEMORY;
    if (!engines)
        return NULL;
    *engines = (struct engines){.rm = rm, .card = card, .doorbell_fd = -1};
    pthread_mutex_init(&engines->lock, NULL);
    status = first_objects(engines);
    *error = from_rm(status);
    if (!status)
        return engines;
    engines_end(engines);
    engines_free(engines);
    return NULL;
}

static void give_back(const struct rmc *rm, uint32_t handle)
{
    if (handle)
        rmc_free(rm, handle);
}

void engines_end(struct engines *engines)
{
    LOCKED(&engines->lock);
    __atomic_store_n(&engines->error, CUDA_ERROR_CONTEXT_IS_DESTROYED, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < CHANNELS; i++)
        if (engines->channels[i])
            channel_end(engines->channels[i]);
    for (int i = 0; i < SIM_ENGINES; i++)
        give_back(engines->rm, engines->group[i]);
    slabs_end(engines);
    engines_ring(engines);
    give_back(engines->rm, engines->usermode);
    give_back(engines->rm, engines->vaspace);
}

void engines_free(struct engines *engines)
{
    for (uint32_t i = 0; i < CHANNELS; i++)
        if (engines->channels[i])
            channel_free(engines->channels[i]);
    slabs_to_pool(engines);
    if (engines->doorbell_fd >= 0)
        close(engines->doorbell_fd);
    pthread_mutex_destroy(&engines->lock);
    free(engines);
}

static uint32_t usermode_class(const struct rmc_card *card)
{
    switch (card->model->channel_class) {
    case VOLTA_CHANNEL_GPFIFO_A:
        return VOLTA_USERMODE_A;
    case TURING_CHANNEL_GPFIFO_A:
        return TURING_USERMODE_A;
    case AMPERE_CHANNEL_GPFIFO_A:
        return AMPERE_USERMODE_A;
    case HOPPER_CHANNEL_GPFIFO_A:
    case BLACKWELL_CHANNEL_GPFIFO_A:
        return HOPPER_USERMODE_A;
    default:
        return BLACKWELL_USERMODE_A;
    }
}

/* The fd is written to for as long as the context lives. */
static uint32_t doorbell_make(struct engines *engines)
{
    struct rmc_mapping mapping = {.bytes = PAGE_BYTES};
    uint32_t parent = engines->card->subdevice, status = NV_OK;

    if (engines->doorbell_fd >= 0)
        return NV_OK;
    if (!engines->usermode)
        status = rmc_alloc(engines->rm, parent, &engines->usermode, usermode_class(engines->card), NULL, 0);
    if (!status)
        status = rmc_map(engines->rm, engines->card, parent, engines->usermode, &mapping);
    if (!status)
        engines->doorbell_fd = mapping.fd;
    return status;
}

/* A group is enabled once it has something to run. */
static uint32_t group_enable(const struct engines *engines, enum sim_engine_index engine)
{
    struct rm_tsg_schedule schedule = {.enable = 1};

    return rmc_control(engines->rm, engines->group[engine], NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &schedule,
                       sizeof schedule);
}

static uint32_t channel_add(struct engines *engines, enum sim_engine_index engine, uint32_t index)
{
    uint32_t status = doorbell_make(engines);
    struct channel *channel;

    if (!status && !engines->group[engine])
        status = group_make(engines, engine);
    if (status)
        return status;
    channel = channel_make(engines, index, &status);
    if (!channel)
        return status;
    status = group_enable(engines, engine);
    if (status) {
        channel_end(channel);
        channel_free(channel);
        return status;
    }
    __atomic_store_n(&engines->channels[index], channel, __ATOMIC_RELEASE);
    return NV_OK;
}

struct channel *engines_channel(struct engines *engines, enum sim_engine_index engine, unsigned int lane,
                                CUresult *error)
{
    uint32_t index = engine * LANES + lane;

    *error = CUDA_SUCCESS;
    if (engines_channel_at(engines, index))
        return engines_channel_at(engines, index);
    pthread_mutex_lock(&engines->lock);
    *error = engines_error(engines);
    if (!*error && !engines->channels[index])
        *error = from_rm(channel_add(engines, engine, index));
    pthread_mutex_unlock(&engines->lock);
    return *error ? NULL : engines_channel_at(engines, index);
}

unsigned int engines_lane(struct engines *engines)
{
    unsigned int number = __atomic_fetch_add(&engines->next_lane, 1, __ATOMIC_RELAXED);

    return 1 + number % (LANES - 1);
}

void engines_leave(struct engines *engines)
{
    if (engines->doorbell_fd >= 0)
        close(engines->doorbell_fd);
    engines->doorbell_fd = -1;
    engines->vaspace = engines->usermode = 0;
    for (int i = 0; i < SIM_ENGINES; i++)
        engines->group[i] = 0;
}

/* The groups that channels were in; as with the first of them, they are enabled last. */
static uint32_t channels_return(struct engines *engines)
{
    bool used[SIM_ENGINES] = {false};
    uint32_t status = NV_OK;

    for (uint32_t i = 0; i < CHANNELS && !status; i++) {
        enum sim_engine_index engine = i / LANES;

        if (!engines->channels[i])
            continue;
        if (!engines->group[engine])
            status = group_make(engines, engine);
        if (!status)
            status = channel_return(engines->channels[i]);
        used[engine] = true;
    }
    for (int i = 0; i < SIM_ENGINES && !status; i++)
        if (used[i])
            status = group_enable(engines, i);
    return status;
}

uint32_t engines_return(struct engines *engines)
{
    uint32_t status = first_objects(engines);
    bool rings = false;

    for (uint32_t i = 0; i < CHANNELS; i++)
        rings |= engines->channels[i] != NULL;
    if (!status && rings)
        status = doorbell_make(engines);
    if (!status)
        status = channels_return(engines);
    return status ? status : slabs_return(engines);
}

bool engines_drained(struct engines *engines)
{
    if (engines_error(engines))
        return true;
    for (uint32_t i = 0; i < CHANNELS; i++) {
        struct channel *channel = engines_channel_at(engines, i);

        if (channel && !mark_reached(engines, channel_mark(channel)))
            return false;
    }
    return true;
}
