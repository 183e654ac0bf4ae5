#include "uvm.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t uvm_initialize(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_initialize *params = call->outer;

    if (params->flags & ~(uint64_t)(UVM_INIT_DISABLE_HMM | UVM_INIT_MULTI_PROCESS))
        return NV_ERR_INVALID_ARGUMENT;
    if (uvm->initialized)
        return params->flags == uvm->flags ? NV_OK : NV_ERR_INVALID_ARGUMENT;
    uvm->client = client_create(call->rm, call->file, 0, 0);
    if (!uvm->client)
        return NV_ERR_NO_MEMORY;
    uvm->client->internal = true;
    uvm->flags = params->flags;
    uvm->managed = (struct managed){call->file->end, call->tgid};
    uvm->initialized = true;
    return NV_OK;
}

static uint32_t register_gpu(struct rm_call *call, struct uvm *uvm)
{
    enum { NUMA_NODE_AT = 20 };
    const int32_t no_node = -1;
    struct sim_card *card = uvm_card_named(call->rm, call->outer);
    struct uvm_card *of;

    if (!card)
        return NV_ERR_GPU_UUID_NOT_FOUND;
    of = &uvm->card[card->index];
    if (of->is_registered)
        return NV_ERR_INVALID_DEVICE;
    of->device = object_create(call->rm, &uvm->client->root, object_new_handle(call->rm, uvm->client),
                               NV01_DEVICE_0);
    if (!of->device)
        return NV_ERR_NO_MEMORY;
    of->device->card = card;
    of->is_registered = true;
    memcpy((char *)call->outer + NUMA_NODE_AT, &no_node, sizeof no_node);
    return NV_OK;
}

static void unregister_channel(struct rm *rm, struct uvm_channel **at)
{
    struct uvm_channel *channel = *at;
    struct rm_object *object = object_find(rm, channel->client, channel->channel);

    if (object && class_is_channel(object->class_id))
        object->bound = object->parent->bound;
    *at = channel->next;
    object_free(rm, channel->group);
    free(channel);
}

static void leave_space(struct rm *rm, struct uvm *uvm, struct sim_card *card)
{
    struct uvm_card *of = &uvm->card[card->index];

    for (struct uvm_channel **at = &uvm->channels; *at;)
        if ((*at)->group->card == card)
            unregister_channel(rm, at);
        else
            at = &(*at)->next;
    uvm_ranges_leave(rm, uvm, card);
    if (of->vaspace)
        vaspace_manage(of->vaspace, &(struct managed){.fd = -1});
    vaspace_put(of->vaspace);
    of->vaspace = NULL;
}

static void part(struct rm *rm, struct uvm *uvm, const struct sim_card *one, const struct sim_card *other)
{
    uvm->card[one->index].peers &= ~(1u << other->index);
    uvm->card[other->index].peers &= ~(1u << one->index);
    uvm_ranges_part(rm, uvm, one, other);
}

static uint32_t unregister_gpu(struct rm_call *call, struct uvm *uvm)
{
    struct sim_card *card;
    struct uvm_card *of = uvm_card_of(call->rm, uvm, call->outer, &card);

    if (!of)
        return NV_ERR_INVALID_DEVICE;
    for (uint32_t i = 0; i < RM_MAX_CARDS; i++)
        if (of->peers & 1u << i)
            part(call->rm, uvm, card, &call->rm->cards[i]);
    leave_space(call->rm, uvm, card);
    object_free(call->rm, of->device);
    *of = (struct uvm_card){.is_registered = false};
    return NV_OK;
}

static bool is_registered(const struct rm *rm, const struct vaspace *vaspace)
{
    for (uint32_t i = 0; i < RM_FILE_BUCKETS; i++)
        for (const struct sim_file *file = rm->files[i]; file; file = file->hash_next)
            for (uint32_t k = 0; file->uvm && k < rm->card_count; k++)
                if (file->uvm->card[k].vaspace == vaspace)
                    return true;
    return false;
}

static uint32_t register_space(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_register_gpu_vaspace *params = call->outer;
    struct sim_card *card;
    struct uvm_card *of = uvm_card_of(call->rm, uvm, params->gpu, &card);
    const struct rm_object *vaspace = object_find(call->rm, params->client, params->vaspace);

    if (!of)
        return NV_ERR_INVALID_DEVICE;
    if (!client_handle_taken(call->rm, params->client))
        return NV_ERR_INVALID_CLIENT;
    if (!vaspace)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (vaspace->class_id != FERMI_VASPACE_A || vaspace->card != card)
        return NV_ERR_INVALID_OBJECT;
    if (!uvm_may_have(call, uvm, vaspace))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (of->vaspace || is_registered(call->rm, vaspace->vaspace)) /* one of each at a time */
        return NV_ERR_INVALID_DEVICE;
    if (!vaspace_manage(vaspace->vaspace, &uvm->managed))
        return NV_ERR_NO_MEMORY;
    of->vaspace = vaspace_take(vaspace->vaspace);
    return NV_OK;
}

static uint32_t unregister_space(struct rm_call *call, struct uvm *uvm)
{
    struct sim_card *card;
    struct uvm_card *of = uvm_card_of(call->rm, uvm, call->outer, &card);

    if (!of || !of->vaspace)
        return NV_ERR_INVALID_DEVICE;
    leave_space(call->rm, uvm, card);
    return NV_OK;
}

static struct uvm_channel **channel_at(struct uvm *uvm, uint32_t client, uint32_t channel)
{
    struct uvm_channel **at = &uvm->channels;

    while (*at && ((*at)->client != client || (*at)->channel != channel))
        at = &(*at)->next;
    return at;
}

static uint32_t uvm_register_channel(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_register_channel *params = call->outer;
    struct sim_card *card;
    struct uvm_card *of = uvm_card_of(call->rm, uvm, params->gpu, &card);
    struct rm_object *channel = object_find(call->rm, params->client, params->channel);
    struct uvm_channel **at = channel_at(uvm, params->client, params->channel), *made;

    if (!of || !of->vaspace)
        return NV_ERR_INVALID_DEVICE;
    if (!channel || !class_is_channel(channel->class_id))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (channel->card != card)
        return NV_ERR_INVALID_CHANNEL;
    if (!uvm_may_have(call, uvm, channel->parent))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (*at) {
        channel->bound = true;
        return NV_OK;
    }
    made = calloc(1, sizeof *made);
    if (!made)
        return NV_ERR_NO_MEMORY;
    made->client = params->client;
    made->channel = params->channel;
    made->group = object_alias(call->rm, of->device, object_new_handle(call->rm, uvm->client),
                               channel->parent);
    if (!made->group) {
        free(made);
        return NV_ERR_NO_MEMORY;
    }
    channel->bound = true;
    *at = made;
    return NV_OK;
}

/* The client and the channel are the last before the status, with the card's name before them or without. */
static uint32_t unregister(struct rm_call *call, struct uvm *uvm)
{
    struct {
        uint32_t client, channel;
    } of;
    struct uvm_channel **at;

    memcpy(&of, (char *)call->outer + call->outer_bytes - sizeof of - sizeof(uint32_t), sizeof of);
    at = channel_at(uvm, of.client, of.channel);
    if (!*at)
        return NV_ERR_INVALID_CHANNEL;
    unregister_channel(call->rm, at);
    return NV_OK;
}

/* Nothing but ranges reaches the card's memory: no fault of a card's brings in any other. */
static uint32_t pageable(struct rm_call *call, struct uvm *uvm)
{
    (void)uvm;
    ((struct uvm_pageable *)call->outer)->access = 0;
    return NV_OK;
}

static uint32_t pageable_on_gpu(struct rm_call *call, struct uvm *uvm)
{
    struct {
        uint8_t gpu[UVM_UUID_BYTES], access;
    } *of = (void *)call->outer;
    struct sim_card *card = uvm_card_named(call->rm, of->gpu);

    if (!card || !uvm->card[card->index].is_registered)
        return NV_ERR_INVALID_DEVICE;
    of->access = 0;
    return NV_OK;
}

/* Two that are registered, and whether they are peers. */
static bool pair_of(struct rm_call *call, struct uvm *uvm, struct sim_card **a, struct sim_card **b,
                    bool *peers)
{
    const uint8_t *uuid = call->outer;

    if (!uvm_card_of(call->rm, uvm, uuid, a) || !uvm_card_of(call->rm, uvm, uuid + UVM_UUID_BYTES, b) ||
        *a == *b)
        return false;
    *peers = uvm->card[(*a)->index].peers & 1u << (*b)->index;
    return true;
}

static uint32_t enable_peers(struct rm_call *call, struct uvm *uvm)
{
    struct sim_card *a, *b;
    bool peers;

    if (!pair_of(call, uvm, &a, &b, &peers))
        return NV_ERR_INVALID_DEVICE;
    if (!cards_are_peers(a, b))
        return NV_ERR_NOT_SUPPORTED;
    if (peers)
        return NV_ERR_INVALID_DEVICE;
    uvm->card[a->index].peers |= 1u << b->index;
    uvm->card[b->index].peers |= 1u << a->index;
    return NV_OK;
}

static uint32_t disable_peers(struct rm_call *call, struct uvm *uvm)
{
    struct sim_card *a, *b;
    bool peers;

    if (!pair_of(call, uvm, &a, &b, &peers) || !peers)
        return NV_ERR_INVALID_DEVICE;
    part(call->rm, uvm, a, b);
    return NV_OK;
}

/* Nothing moves, and what a card does to the host's memory is atomic. */
static uint32_t nothing_to_do(struct rm_call *call, struct uvm *uvm)
{
    (void)call;
    (void)uvm;
    return NV_OK;
}

/* As where the kernel tells of the end of a process's memory by itself (uvm_mm_initialize() of NVIDIA's
 * nvidia-uvm). */
static uint32_t watch_memory(struct rm_call *call, struct uvm *uvm)
{
    (void)call;
    (void)uvm;
    return NV_WARN_NOTHING_TO_DO;
}

static const struct {
    uint32_t cmd;
    bool fresh; /* a file that is not initialised takes it */
    uint32_t (*execute)(struct rm_call *call, struct uvm *uvm);
} commands[] = {
    {UVM_INITIALIZE, true, uvm_initialize},
    {UVM_MM_INITIALIZE, true, watch_memory},
    {UVM_REGISTER_GPU, false, register_gpu},
    {UVM_UNREGISTER_GPU, false, unregister_gpu},
    {UVM_REGISTER_GPU_VASPACE, false, register_space},
    {UVM_UNREGISTER_GPU_VASPACE, false, unregister_space},
    {UVM_REGISTER_CHANNEL, false, uvm_register_channel},
    {UVM_UNREGISTER_CHANNEL, false, unregister},
    {UVM_CREATE_EXTERNAL_RANGE, false, uvm_create_range},
    {UVM_MAP_EXTERNAL_ALLOCATION, false, uvm_map_external},
    {UVM_UNMAP_EXTERNAL, false, uvm_unmap_external},
    {UVM_FREE, false, uvm_free_range},
    {UVM_ALLOC_SEMAPHORE_POOL, false, uvm_create_pool},
    {UVM_MAP_DYNAMIC_PARALLELISM_REGION, false, uvm_create_region},
    {UVM_VALIDATE_VA_RANGE, false, uvm_validate_range},
    {UVM_MIGRATE, false, uvm_migrate},
    {UVM_SET_PREFERRED_LOCATION, false, uvm_processor_policy},
    {UVM_UNSET_PREFERRED_LOCATION, false, uvm_range_policy},
    {UVM_SET_ACCESSED_BY, false, uvm_processor_policy},
    {UVM_UNSET_ACCESSED_BY, false, uvm_processor_policy},
    {UVM_ENABLE_READ_DUPLICATION, false, uvm_range_policy},
    {UVM_DISABLE_READ_DUPLICATION, false, uvm_range_policy},
    {UVM_DISCARD, false, uvm_range_policy},
    {UVM_SET_RANGE_GROUP, false, uvm_range_group},
    {UVM_CREATE_RANGE_GROUP, false, uvm_create_group},
    {UVM_DESTROY_RANGE_GROUP, false, uvm_destroy_group},
    {UVM_PREVENT_MIGRATION_RANGE_GROUPS, true, nothing_to_do},
    {UVM_ALLOW_MIGRATION_RANGE_GROUPS, true, nothing_to_do},
    {UVM_ENABLE_SYSTEM_WIDE_ATOMICS, true, nothing_to_do},
    {UVM_DISABLE_SYSTEM_WIDE_ATOMICS, true, nothing_to_do},
    {UVM_PAGEABLE_MEM_ACCESS, false, pageable},
    {UVM_PAGEABLE_MEM_ACCESS_ON_GPU, false, pageable_on_gpu},
    {UVM_ENABLE_PEER_ACCESS, false, enable_peers},
    {UVM_DISABLE_PEER_ACCESS, false, disable_peers},
};

int uvm_command(struct rm_call *call)
{
    struct uvm_size size = uvm_size_of(&call->rm->table, call->cmd);
    uint32_t status = NV_ERR_ILLEGAL_ACTION;

    if (call->cmd == UVM_DEINITIALIZE)
        return 0;
    if (!size.bytes || call->outer_bytes != size.bytes || !rm_command_row(&call->rm->table, call->cmd))
        return -EINVAL;
    if (!call->file->uvm && !(call->file->uvm = calloc(1, sizeof *call->file->uvm)))
        return -ENOMEM;
    if (call->file->uvm->initialized)
        status = NV_ERR_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (commands[i].cmd == call->cmd && (call->file->uvm->initialized || commands[i].fresh))
            status = commands[i].execute(call, call->file->uvm);
    memcpy((char *)call->outer + size.status_at, &status, sizeof status);
    return 0;
}

void uvm_end(struct rm *rm, struct sim_file *file)
{
    struct uvm *uvm = file->uvm;

    if (!uvm)
        return;
    while (uvm->channels)
        unregister_channel(rm, &uvm->channels);
    uvm_ranges_end(rm, uvm);
    for (uint32_t i = 0; i < RM_MAX_CARDS; i++) {
        if (uvm->card[i].vaspace)
            vaspace_manage(uvm->card[i].vaspace, &(struct managed){.fd = -1});
        vaspace_put(uvm->card[i].vaspace);
    }
    free(uvm);
    file->uvm = NULL;
}
