#include "../../native_sched/nvidia/rm/channel.h"
#include "../../native_sched/nvidia/rm/peers_abi.h"
#include "rm.h"
#include <string.h>

typedef uint32_t (*construct_fn)(struct rm_call *call, struct rm_object *object);

static uint32_t device(struct rm_call *call, struct rm_object *object)
{
    const struct rm_device *params = call->params;

    object->card = &call->rm->cards[params->id];
    object->vaspace = vaspace_create();
    if (!object->vaspace)
        return NV_ERR_NO_MEMORY;
    call->own_us = call->rm->init_us;
    return NV_OK;
}

static uint32_t subdevice(struct rm_call *call, struct rm_object *object)
{
    const struct rm_subdevice *params = call->params;

    object->instance = params->id;
    return NV_OK;
}

/* A class has one object for a device, or subdevice, below another. */
static uint32_t instance_status(struct rm_call *call, const struct rm_object *above, uint32_t class_id)
{
    const struct rm_device *params = call->params;
    bool device = class_id == NV01_DEVICE_0;

    if (params->id == UINT32_MAX)
        return device ? NV_ERR_INVALID_ARGUMENT : NV_ERR_INVALID_CLASS;
    if (device && params->id >= call->rm->card_count)
        return NV_ERR_INVALID_CLASS;
    if (device && params->flags == UINT32_MAX)
        return NV_ERR_INVALID_ARGUMENT;
    for (const struct rm_object *other = above->child; other; other = other->next)
        if (other->class_id == class_id &&
            (device ? other->card == &call->rm->cards[params->id] : other->instance == params->id))
            return NV_ERR_INSUFFICIENT_RESOURCES;
    return NV_OK;
}

/* By a debugger of what is executed, where there is an object to debug. */
static uint32_t debugger(struct rm_call *call, struct rm_object *object)
{
    const struct rm_debugger *params = call->params;

    (void)object;
    return object_find(call->rm, params->client, params->object) ? NV_OK : NV_ERR_INVALID_OBJECT_PARENT;
}

/* Of a client's channel or group, or of the card. Everybody may profile here: the driver's setting is so. */
static uint32_t profiler(struct rm_call *call, struct rm_object *object)
{
    const struct rm_profiler *params = call->params;

    (void)object;
    if (params->client && !object_find(call->rm, params->client, params->context))
        return NV_ERR_INVALID_OBJECT_PARENT;
    return NV_OK;
}

static uint32_t memory(struct rm_call *call, struct rm_object *object)
{
    struct rm_memory *params = call->params;
    uint32_t location = params->attr >> RM_MEMORY_ATTR_LOCATION_SHIFT & RM_MEMORY_ATTR_LOCATION_MASK;
    uint64_t page = memory_page_bytes(params);
    uint32_t status = memory_params_status(params);

    if (status)
        return status;
    if (location || params->flags & RM_MEMORY_FLAG_VIRTUAL || params->size > -page)
        return NV_ERR_INVALID_ARGUMENT;
    if (params->vaspace && !object_find(call->rm, object->client->root.handle, params->vaspace))
        return NV_ERR_INVALID_ARGUMENT;
    params->size = (params->size + page - 1) & ~(page - 1);
    if (!object_take(object, params->size))
        return NV_ERR_NO_MEMORY;
    object->memory_bytes = params->size; /* what a name of it counts, be it a page of 4 KiB */
    if (call->rm->data && !(object->memory = sysmem_sparse(object->bytes)))
        return NV_ERR_NO_MEMORY;
    params->limit = params->size - 1;
    memory_say_pages(params, page);
    return NV_OK;
}

/* Of the engines that the chip has. */
static uint32_t engine_object(struct rm_call *call, struct rm_object *object)
{
    bool listed = chip_lists(object->card->profile->chip, call->rm->major, call->rm->minor, object->class_id);

    return listed ? NV_OK : NV_ERR_INVALID_CLASS;
}

static bool is_memory(const struct rm_call *call, const struct rm_object *of, uint32_t handle)
{
    const struct rm_object *found = object_find(call->rm, of->client->root.handle, handle);

    return found && class_has_names(found->class_id);
}

/* NV_SEMAPHORE_SURFACE_ALLOC_PARAMETERS: in memory of the host's alone. */
static uint32_t semaphores(struct rm_call *call, struct rm_object *object)
{
    const uint32_t *memory = call->params;
    const struct rm_object *found = object_find(call->rm, object->client->root.handle, *memory);

    if (!found)
        return NV_ERR_OBJECT_NOT_FOUND;
    return found->class_id == NV01_MEMORY_SYSTEM ? NV_OK : NV_ERR_INVALID_PARAMETER;
}

/* NV_CONTEXT_DMA_ALLOCATION_PARAMS: of the client's own memory. */
static uint32_t context_dma(struct rm_call *call, struct rm_object *object)
{
    const struct {
        uint32_t subdevice, flags, memory;
    } *params = call->params;

    return is_memory(call, object, params->memory) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

/* NVA0BC_ALLOC_PARAMETERS: of the first version statistics are put into memory. */
static uint32_t video_session(struct rm_call *call, struct rm_object *object)
{
    enum { SAYS_VERSION = 3, MEMORY = 4 };
    const uint32_t *params = call->params;

    return params[SAYS_VERSION] != 1 || is_memory(call, object, params[MEMORY]) ? NV_OK
                                                                                : NV_ERR_OBJECT_NOT_FOUND;
}

/* The last byte of the classes of a kind of video engine; 0: it is none. */
static uint32_t video_of(uint32_t engine_type)
{
    enum { NVDEC = 0xb0, NVENC = 0xb7, NVJPG = 0xd1, OFA = 0xfa };

    if (!rm_is_video_engine(engine_type))
        return 0;
    if (engine_type == RM_ENGINE_OFA0 || engine_type == RM_ENGINE_OFA1)
        return OFA;
    if (engine_type >= RM_ENGINE_NVJPG0 && engine_type < RM_ENGINE_OFA0)
        return NVJPG;
    return engine_type < RM_ENGINE_NVENC0 ? NVDEC : NVENC;
}

/* On a channel of such an engine. Parameters begin with their size (NV_BSP_ALLOCATION_PARAMETERS). */
static uint32_t video_object(struct rm_call *call, struct rm_object *object)
{
    uint32_t status = engine_object(call, object);

    if (status)
        return status;
    if (call->params_bytes && *(const uint32_t *)call->params != call->params_bytes)
        return NV_ERR_INVALID_ARGUMENT;
    return video_of(object->parent->engine_type) == (object->class_id & 0xff) ? NV_OK : NV_ERR_INVALID_CLASS;
}

/* As p2papiConstruct_IMPL() in NVIDIA's p2p_api.c. */
static bool is_one_bit(uint32_t mask)
{
    return !(mask & (mask - 1));
}

static const struct rm_object *subdevice_of(struct rm_call *call, const struct rm_object *object,
                                            uint32_t handle)
{
    const struct rm_object *found = object_find(call->rm, object->client->root.handle, handle);

    return found && found->class_id == NV20_SUBDEVICE_0 ? found : NULL;
}

static uint32_t peers(struct rm_call *call, struct rm_object *object)
{
    const struct rm_p2p *params = call->params;
    const struct rm_object *one = subdevice_of(call, object, params->subdevice);
    const struct rm_object *other = subdevice_of(call, object, params->peer);

    if (!one || !other || !is_one_bit(params->peer_ids) || !is_one_bit(params->peers_ids) ||
        !is_one_bit(params->egm_ids) || !is_one_bit(params->peers_egm_ids))
        return NV_ERR_INVALID_ARGUMENT;
    if (one == other && (params->peer_ids != params->peers_ids || params->egm_ids != params->peers_egm_ids))
        return NV_ERR_INVALID_ARGUMENT;
    if (!cards_are_peers(one->card, other->card))
        return NV_ERR_NOT_SUPPORTED;
    object->peers[0] = params->subdevice;
    object->peers[1] = params->peer;
    return NV_OK;
}

enum { BY_ALLOC_MEMORY = 0 };                  /* below nothing: pages.c makes it */
enum { ANY_CHANNEL = VOLTA_CHANNEL_GPFIFO_A }; /* stands for the channels of every architecture */
enum { ANY_OF_CARD = NV20_SUBDEVICE_0 - 1 };   /* a device or a subdevice */
enum { ANY_WITH_WORK = NV20_SUBDEVICE_0 + 1 }; /* a subdevice, a channel or a group */
#define ANY_PARENT UINT32_MAX

/* Of parameters: ANY, of another size than this driver version's are accepted unread. READ: RM reads as many
 * as it knows, whatever size is said; what is not there is zero. OPTIONAL: that, and there may be none
 * (RS_OPTIONAL in resource_list.h). */
enum params { ANY, EXACT, READ, OPTIONAL };

static const struct class_rule {
    uint32_t class_id, parent_class;
    enum params params;
    construct_fn construct;
    void (*release)(struct rm_object *object);
} rules[] = {
    {NV01_DEVICE_0, NV01_ROOT_CLIENT, READ, device, vaspace_free},
    {NV20_SUBDEVICE_0, NV01_DEVICE_0, OPTIONAL, subdevice, NULL},
    {NV01_MEMORY_LOCAL_USER, ANY_OF_CARD, EXACT, memory, memory_free},
    {NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, BY_ALLOC_MEMORY, EXACT, NULL, NULL},
    {NV01_MEMORY_SYSTEM, NV01_DEVICE_0, EXACT, system_memory_alloc, system_memory_free},
    {FERMI_VASPACE_A, ANY_OF_CARD, ANY, vaspace_alloc, vaspace_free},
    {KEPLER_CHANNEL_GROUP_A, NV01_DEVICE_0, EXACT, channel_group_alloc, channel_group_free},
    {VOLTA_CHANNEL_GPFIFO_A, KEPLER_CHANNEL_GROUP_A, ANY, channel_alloc, channel_free},
    {TURING_CHANNEL_GPFIFO_A, KEPLER_CHANNEL_GROUP_A, ANY, channel_alloc, channel_free},
    {AMPERE_CHANNEL_GPFIFO_A, KEPLER_CHANNEL_GROUP_A, ANY, channel_alloc, channel_free},
    {HOPPER_CHANNEL_GPFIFO_A, KEPLER_CHANNEL_GROUP_A, ANY, channel_alloc, channel_free},
    {BLACKWELL_CHANNEL_GPFIFO_A, KEPLER_CHANNEL_GROUP_A, ANY, channel_alloc, channel_free},
    {BLACKWELL_CHANNEL_GPFIFO_B, KEPLER_CHANNEL_GROUP_A, ANY, channel_alloc, channel_free},
    {VOLTA_USERMODE_A, NV20_SUBDEVICE_0, ANY, usermode_alloc, usermode_free},
    {TURING_USERMODE_A, NV20_SUBDEVICE_0, ANY, usermode_alloc, usermode_free},
    {AMPERE_USERMODE_A, NV20_SUBDEVICE_0, ANY, usermode_alloc, usermode_free},
    {HOPPER_USERMODE_A, NV20_SUBDEVICE_0, ANY, usermode_alloc, usermode_free},
    {BLACKWELL_USERMODE_A, NV20_SUBDEVICE_0, ANY, usermode_alloc, usermode_free},
    /* There, and that is all: a start of libcuda makes them. */
    {RM_USER_SHARED_DATA, NV20_SUBDEVICE_0, EXACT, NULL, NULL},
    {NV2081_BINAPI, NV20_SUBDEVICE_0, ANY, NULL, NULL},
    {NV20_SUBDEVICE_DIAG, NV20_SUBDEVICE_0, ANY, NULL, NULL},
    {GF100_SUBDEVICE_MASTER, NV20_SUBDEVICE_0, ANY, NULL, NULL},
    {MPS_COMPUTE, NV01_ROOT_CLIENT, ANY, NULL, NULL},
    {NV_CONFIDENTIAL_COMPUTE, NV01_ROOT_CLIENT, ANY, NULL, NULL},
    {NV_MEMORY_MAPPER, NV20_SUBDEVICE_0, ANY, NULL, NULL},
    {NV_SEMAPHORE_SURFACE, NV20_SUBDEVICE_0, EXACT, semaphores, NULL},
    {GF100_ZBC_CLEAR, NV20_SUBDEVICE_0, ANY, NULL, NULL},
    {KEPLER_INLINE_TO_MEMORY_B, ANY_CHANNEL, ANY, engine_object, NULL},
    {BLACKWELL_INLINE_TO_MEMORY_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {FERMI_CONTEXT_SHARE_A, KEPLER_CHANNEL_GROUP_A, ANY, context_share_alloc, vaspace_free},
    {GT200_DEBUGGER, NV01_DEVICE_0, READ, debugger, NULL},
    {GF100_PROFILER, ANY_WITH_WORK, ANY, NULL, NULL},
    {MAXWELL_PROFILER_DEVICE, NV20_SUBDEVICE_0, EXACT, profiler, NULL},
    {NV01_EVENT, ANY_PARENT, EXACT, event_alloc, NULL},
    {NV01_EVENT_OS_EVENT, ANY_PARENT, EXACT, event_alloc, NULL},
    {NV01_MEMORY_VIRTUAL, NV01_DEVICE_0, EXACT, virtual_memory_alloc, vaspace_free},
    {NV50_MEMORY_VIRTUAL, NV01_DEVICE_0, ANY, virtual_memory_alloc, vaspace_free},
    {NV01_CONTEXT_DMA, ANY_PARENT, EXACT, context_dma, NULL},
    {NV50_P2P, NV01_ROOT_CLIENT, EXACT, peers, NULL},
    {NV50_THIRD_PARTY_P2P, NV20_SUBDEVICE_0, EXACT, third_party_alloc, third_party_free},
    {NVENC_SW_SESSION, NV20_SUBDEVICE_0, EXACT, video_session, NULL},
    {VOLTA_COMPUTE_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {VOLTA_DMA_COPY_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {TURING_COMPUTE_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {TURING_DMA_COPY_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {AMPERE_COMPUTE_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {AMPERE_COMPUTE_B, ANY_CHANNEL, ANY, engine_object, NULL},
    {AMPERE_DMA_COPY_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {AMPERE_DMA_COPY_B, ANY_CHANNEL, ANY, engine_object, NULL},
    {ADA_COMPUTE_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {HOPPER_COMPUTE_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {HOPPER_DMA_COPY_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {BLACKWELL_COMPUTE_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {BLACKWELL_COMPUTE_B, ANY_CHANNEL, ANY, engine_object, NULL},
    {BLACKWELL_DMA_COPY_A, ANY_CHANNEL, ANY, engine_object, NULL},
    {BLACKWELL_DMA_COPY_B, ANY_CHANNEL, ANY, engine_object, NULL},
};

static const struct class_rule *rule_of(uint32_t class_id)
{
    static const struct class_rule video = {0, ANY_CHANNEL, OPTIONAL, video_object, NULL};
    static const struct class_rule graphics = {0, ANY_CHANNEL, ANY, engine_object, NULL};

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].class_id == class_id)
            return &rules[i];
    if (rm_kind_of(class_id) == RM_KIND_GRAPHICS)
        return &graphics;
    return rm_kind_of(class_id) == RM_KIND_VIDEO_SESSION ? &video : NULL;
}

static bool below(const struct class_rule *rule, const struct rm_object *above)
{
    if (rule->parent_class == ANY_CHANNEL)
        return class_is_channel(above->class_id);
    if (rule->parent_class == ANY_OF_CARD)
        return above->class_id == NV01_DEVICE_0 || above->class_id == NV20_SUBDEVICE_0;
    if (rule->parent_class == ANY_WITH_WORK)
        return above->class_id == NV20_SUBDEVICE_0 || class_is_channel(above->class_id) ||
               above->class_id == KEPLER_CHANNEL_GROUP_A;
    return rule->parent_class == ANY_PARENT || above->class_id == rule->parent_class;
}

/* Its name is what the caller has written as the client: RM looks at no other (serverAllocClient()). */
static uint32_t alloc_client(struct rm_call *call, uint32_t name, uint32_t *handle)
{
    struct rm_client *client;

    if (name && client_handle_taken(call->rm, name))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    client = client_create(call->rm, call->file, name, call->tgid);
    if (!client)
        return NV_ERR_NO_MEMORY;
    *handle = client->root.handle;
    return NV_OK;
}

uint32_t class_alloc(struct rm_call *call, uint32_t root, uint32_t parent, uint32_t *handle,
                     uint32_t class_id)
{
    struct rm_device read = {0}; /* the largest that is read so */
    const struct sim_file *file = file_of_clients(call->rm, call->file);
    const struct class_rule *rule;
    struct rm_client *client;
    struct rm_object *object, *above;
    uint32_t name, status;

    /* 0, 1 (non-privileged) and 0x41 all make a root client. */
    if (class_id <= 1 || class_id == NV01_ROOT_CLIENT)
        return alloc_client(call, root, handle);
    client = client_find(call->rm, root, file);
    if (!client)
        return client_status(call->rm, root, file);
    above = object_find(call->rm, root, parent);
    if (!above)
        return NV_ERR_OBJECT_NOT_FOUND;
    rule = rule_of(class_id);
    if (!rule)
        return NV_ERR_INVALID_CLASS;
    if (!below(rule, above))
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (*handle && *handle == root)
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (rule->params == READ && !call->params_bytes)
        return NV_ERR_INVALID_ARGUMENT;
    if (rule->params == READ || rule->params == OPTIONAL) {
        memcpy(&read, call->params, call->params_bytes < sizeof read ? call->params_bytes : sizeof read);
        call->params = &read;
    } else if (rule->params != ANY && (int)call->params_bytes != rm_class_params(&call->rm->table, class_id))
        return NV_ERR_INVALID_ARGUMENT;
    status = rule->construct == device || rule->construct == subdevice
                 ? instance_status(call, above, class_id)
                 : NV_OK;
    if (status)
        return status;
    if (*handle && object_find(call->rm, root, *handle))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    name = *handle ? *handle : object_new_handle(call->rm, client);
    object = object_create(call->rm, above, name, class_id);
    if (!object)
        return NV_ERR_NO_MEMORY;
    object->release = rule->release;
    status = NV_OK;
    if (rule->construct && !(object->card && object->card->lost))
        status = rule->construct(call, object);
    if (!status && object->card && object->card->lost)
        status = NV_ERR_GPU_IS_LOST;
    if (status) {
        object_free(call->rm, object);
        return status;
    }
    *handle = name;
    return NV_OK;
}
