#include "../../native_sched/nvidia/rm/peers_abi.h"
#include "world.h"
#include <errno.h>

enum { GRANULE = 65536, HEAP_BYTES = 1 << 30, OWN_BYTES = 3 << 20, FRESH_HANDLE = 0x50000000 };

int model_find(uint32_t client, uint32_t handle)
{
    for (int i = 0; i < NODES; i++)
        if (world.node[i].live && world.node[i].client == client && world.node[i].handle == handle)
            return i;
    return -1;
}

int model_find_client(uint32_t client, uint64_t file)
{
    int i = model_find(client, client);

    return i >= 0 && world.node[i].parent < 0 && world.node[i].file == file ? i : -1;
}

static bool is_root(uint32_t class_id)
{
    return class_id <= 1 || class_id == NV01_ROOT_CLIENT;
}

static bool is_channel(uint32_t class_id)
{
    return (class_id & 0xff) == 0x6f && class_id >= VOLTA_CHANNEL_GPFIFO_A;
}

static uint64_t taken(uint32_t card)
{
    uint64_t bytes = 0;

    for (int i = 0; i < NODES; i++)
        if (world.node[i].live && world.node[i].card == card)
            bytes += world.node[i].bytes;
    return bytes; /* some of it more than once: the heap is large */
}

/* What the driver takes by itself. */
static uint64_t own_bytes(uint32_t class_id, const void *params)
{
    (void)params;
    return class_id == FERMI_VASPACE_A || class_id == KEPLER_CHANNEL_GROUP_A ? OWN_BYTES : 0;
}

static bool has_peers(const struct node *n)
{
    int one = model_find(n->client, n->peers[0]), other = model_find(n->client, n->peers[1]);

    return one >= 0 && other >= 0 && world.node[one].class_id == NV20_SUBDEVICE_0 &&
           world.node[other].class_id == NV20_SUBDEVICE_0;
}

/* As the class's constructor: what it needs and what it gives back in the parameters. */
static uint32_t construct(struct node *n, struct driver_call *call)
{
    struct rm_memory *memory = (void *)call->params;
    const struct rm_device *device = (const void *)call->params;
    const struct rm_channel *channel = (const void *)call->params;
    const struct rm_channel_group *group = (const void *)call->params;
    const struct card *card;

    if (n->class_id == NV01_DEVICE_0) {
        if (call->params_bytes < sizeof(*device) || device->id >= CARDS)
            return NV_ERR_INVALID_DEVICE;
        n->card = device->id;
    }
    if (n->class_id == NV01_MEMORY_LOCAL_USER) {
        if (call->params_bytes < 120 || !memory->size || memory->size > HEAP_BYTES)
            return NV_ERR_INVALID_ARGUMENT;
        n->bytes = (memory->size + GRANULE - 1) / GRANULE * GRANULE;
        if (one_in(world.choices, 16)) /* a driver may give more than was asked for, and says so */
            n->bytes += GRANULE * (1 + (uint64_t)below(world.choices, 200));
        if (taken(n->card) + n->bytes > HEAP_BYTES)
            return NV_ERR_NO_MEMORY;
        memory->size = n->bytes;
    }
    if (n->class_id == NV01_MEMORY_LOCAL_USER || n->class_id == NV01_MEMORY_SYSTEM)
        n->memory = ++world.last_memory;
    if (n->class_id == KEPLER_CHANNEL_GROUP_A) {
        if (call->params_bytes < sizeof(*group))
            return NV_ERR_INVALID_ARGUMENT;
        card = &world.m.card[n->card];
        n->bytes = group->engine_type >= RM_ENGINE_COPY0 ? card->copy_context_bytes : card->context_bytes;
    }
    if (n->card != OBJECT_NO_CARD)
        n->bytes += own_bytes(n->class_id, call->params);
    if (n->class_id == NV50_P2P) {
        const struct rm_p2p *peers = (const void *)call->params;

        n->peers[0] = peers->subdevice;
        n->peers[1] = peers->peer;
        if (call->params_bytes < sizeof(*peers) || !has_peers(n))
            return NV_ERR_INVALID_ARGUMENT;
    }
    n->is_channel = is_channel(n->class_id);
    n->has_userd = n->is_channel && call->params_bytes >= 360 && channel->userd_memory[0];
    return NV_OK;
}

/* The parent a class hangs from; 0: any. */
static uint32_t parent_class(uint32_t class_id)
{
    if (class_id == NV01_DEVICE_0 || class_id == NV50_P2P)
        return NV01_ROOT_CLIENT;
    if (is_channel(class_id))
        return KEPLER_CHANNEL_GROUP_A;
    if (class_id == NV20_SUBDEVICE_0 || class_id == NV01_MEMORY_LOCAL_USER ||
        class_id == NV01_MEMORY_SYSTEM || class_id == KEPLER_CHANNEL_GROUP_A)
        return NV01_DEVICE_0;
    return 0;
}

static uint32_t alloc(struct driver_call *call, uint32_t root, uint32_t parent, uint32_t *handle,
                      uint32_t class_id)
{
    struct node made = {.live = true, .file = call->file->id, .class_id = class_id, .parent = -1};
    uint32_t status;
    int slot = 0, above;

    while (slot < NODES && world.node[slot].live)
        slot++;
    if (slot == NODES)
        return NV_ERR_NO_MEMORY;
    made.handle = *handle ? *handle : FRESH_HANDLE + (uint32_t)slot;
    if (is_root(class_id)) {
        made.client = made.handle;
        made.card = OBJECT_NO_CARD;
        made.class_id = NV01_ROOT_CLIENT;
        if (model_find_client(made.client, call->file->id) >= 0 || model_find(made.client, made.client) >= 0)
            return NV_ERR_INSERT_DUPLICATE_NAME;
    } else {
        if (model_find_client(root, call->file->id) < 0)
            return NV_ERR_INVALID_CLIENT;
        if ((above = model_find(root, parent)) < 0)
            return NV_ERR_OBJECT_NOT_FOUND;
        if (parent_class(class_id) && world.node[above].class_id != parent_class(class_id))
            return NV_ERR_INVALID_OBJECT_PARENT;
        made.client = root;
        made.parent = above;
        made.card = world.node[above].card;
        if (model_find(root, made.handle) >= 0)
            return NV_ERR_INSERT_DUPLICATE_NAME;
        if ((status = construct(&made, call)))
            return status;
    }
    world.node[slot] = made;
    *handle = made.handle;
    return NV_OK;
}

static void free_below(int top)
{
    for (int i = 0; i < NODES; i++)
        if (world.node[i].live && world.node[i].parent == top)
            free_below(i);
    world.node[top].live = false;
}

static uint32_t free_object(const struct driver_call *call, const struct rm_free *f)
{
    int i;

    if (model_find_client(f->root, call->file->id) < 0)
        return NV_ERR_INVALID_CLIENT;
    if ((i = model_find(f->root, f->handle)) < 0)
        return NV_ERR_OBJECT_NOT_FOUND;
    free_below(i);
    for (i = 0; i < NODES; i++)
        if (world.node[i].live && world.node[i].class_id == NV50_P2P && !has_peers(&world.node[i]))
            world.node[i].live = false;
    return NV_OK;
}

static uint32_t disable_channels(const struct node *subdevice, const struct rm_disable_channels *params)
{
    if (subdevice->class_id != NV20_SUBDEVICE_0 || params->count > RM_MAX_DISABLE)
        return NV_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < params->count; i++) {
        int channel = model_find(params->client[i], params->channel[i]);

        if (params->client[i] != subdevice->client || channel < 0 || !world.node[channel].is_channel ||
            world.node[channel].card != subdevice->card)
            return NV_ERR_OBJECT_NOT_FOUND;
        world.node[channel].disabled = params->disable;
    }
    return NV_OK;
}

static uint32_t control(struct driver_call *call, const struct rm_control *ctl)
{
    struct rm_tsg_info *info = (void *)call->params;
    int i = model_find(ctl->client, ctl->object);
    uint32_t status;

    if (model_find_client(ctl->client, call->file->id) < 0)
        return NV_ERR_INVALID_CLIENT;
    if (model_exports(call, ctl->client, ctl->cmd, &status))
        return status;
    if (i < 0)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (ctl->cmd == NVA06C_CTRL_CMD_GET_INFO)
        info->tsg_id = (uint32_t)i + 1;
    if (ctl->cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE)
        world.node[i].scheduled = ((const struct rm_tsg_schedule *)(const void *)call->params)->enable;
    if (ctl->cmd == NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS)
        return disable_channels(&world.node[i], (const void *)call->params);
    if (ctl->cmd == NV2080_CTRL_CMD_FB_GET_INFO_V2 || ctl->cmd == NV0000_CTRL_CMD_GPU_GET_ID_INFO)
        fill(world.choices, call->params, call->params_bytes < 64 ? call->params_bytes : 64);
    return NV_OK;
}

static const uint32_t failures[] = {NV_ERR_NO_MEMORY, NV_ERR_INSUFFICIENT_PERMISSIONS,
                                    NV_ERR_INVALID_ARGUMENT, 0xffffffff};

/* What the mediator does of its own accord is to succeed: an object that it cannot take back would be the
 * driver's word against the account, and nothing here could tell which is right. */
static bool fails(const struct driver_call *call)
{
    const struct rm_control *ctl = (const void *)call->outer;
    bool exports = RM_NR(call->cmd) == NV_ESC_RM_CONTROL &&
                   (ctl->cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD ||
                    ctl->cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD);

    return (call->outer == world.outer || exports) && one_in(world.choices, 24);
}

static int execute(struct driver *d, struct driver_call *call)
{
    static const int errors[] = {-EBADF, -EAGAIN, -EIO, -EINTR};
    uint32_t status = 0, *handle;
    uint8_t *outer = call->outer;

    (void)d;
    call->reply_fd = -1;
    if (fails(call))
        return errors[below(world.choices, 4)];
    if (fails(call))
        status = failures[below(world.choices, 4)];
    switch (RM_NR(call->cmd)) {
    case NV_ESC_RM_ALLOC:
        handle = &((struct rm_alloc *)(void *)outer)->handle;
        if (!status)
            status = alloc(call, ((const uint32_t *)(const void *)outer)[0],
                           ((const uint32_t *)(const void *)outer)[1], handle,
                           ((const uint32_t *)(const void *)outer)[3]);
        memcpy(outer + rm_command_row(call->rm, call->cmd)->status_at, &status, sizeof(status));
        break;
    case NV_ESC_RM_FREE:
        ((struct rm_free *)(void *)outer)->status = status ? status : free_object(call, (void *)outer);
        break;
    case NV_ESC_RM_CONTROL:
        ((struct rm_control *)(void *)outer)->status = status ? status : control(call, (void *)outer);
        break;
    case NV_ESC_RM_MAP_MEMORY:
        ((struct rm_map_memory *)(void *)outer)->status = status;
        break;
    case NV_ESC_RM_DUP_OBJECT:
        ((struct rm_dup *)(void *)outer)->status = status ? status : model_dup(call, (void *)outer);
        break;
    case NV_ESC_RM_SHARE:
        ((struct rm_share *)(void *)outer)->status = status ? status : model_share(call, (void *)outer);
        break;
    default: /* whatever a driver may leave there */
        fill(world.choices, outer, call->outer_bytes < 16 ? call->outer_bytes : 16);
    }
    return 0;
}

void model_file_gone(uint64_t file)
{
    for (int i = 0; i < NODES; i++)
        if (world.node[i].live && world.node[i].file == file)
            world.node[i].live = false;
    model_exports_gone(file);
}

static int identify(struct driver *d, struct caller *c, struct tenant *t, int fd, struct open_file *out)
{
    uint32_t whose = (uint32_t)(t - world.tenant);

    (void)d;
    (void)c;
    if (fd == FILE_OF_OTHERS)
        return -EPERM;
    if (fd < 0 || fd >= TENANT_FILES || !world.open[whose][fd])
        return -ENOTTY;
    *out = (struct open_file){
        .id = world.open[whose][fd],
        .dev = 1,
        .ino = world.open[whose][fd],
        .tenant = t,
        .kind = fd ? NODE_CTL : NODE_CARD,
    };
    return 0;
}

static int userd_map(struct driver *d, const struct rm_target *channel, struct userd *out)
{
    static uint8_t page[RM_USERD_BYTES];

    (void)d;
    (void)channel;
    if (one_in(world.choices, 16))
        return -EIO;
    fill(world.choices, page + RM_USERD_GP_GET, 8);
    *out = (struct userd){.at = page};
    world.userd_maps++;
    return 0;
}

static void userd_unmap(struct userd *userd)
{
    (void)userd;
    world.userd_maps--;
}

const struct driver_ops model_ops = {
    .name = "model",
    .identify = identify,
    .execute = execute,
    .own_bytes = own_bytes,
    .userd_map = userd_map,
    .userd_unmap = userd_unmap,
    .granule_bytes = GRANULE,
};
