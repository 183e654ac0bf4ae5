/* The escapes that make and free objects by class: ALLOC in both its layouts, ALLOC_OBJECT, FREE. A tenant's
 * calls of this kind are carried out one after the other, so that no listener's call comes between what
 * another's asked for and what was accounted for. */
#include "control.h"
#include "create.h"
#include "handlers.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/continued/mig.h"
#include "native_sched/nvidia/rm/channel.h"
#include "native_sched/nvidia/rm/peers_abi.h"
#include <errno.h>
#include <string.h>

enum { BLANK_PAGE_BYTES = 4096 };

/* Fetches the parameters of a class, as many as the driver takes: it sizes them by class, whatever size the
 * caller names (serverAllocApiCopyIn()). Where a version's class is not known it is refused as another's. 0,
 * a negative errno or rm_refusal(). */
static int fetch_params(struct call *c, uint32_t class_id, uint64_t at)
{
    const struct rm_row *row = c->params_row, *refused = row ? row : rm_class_row(NULL, class_id);
    uint32_t bytes;

    if (!row || row->kind == RM_KIND_REFUSED)
        return rm_refusal(refused && refused->status ? refused->status : NV_ERR_INVALID_CLASS);
    bytes = rm_bytes(&c->m->rm, row->bytes);
    if (bytes && !at)
        memset(c->params, 0, bytes);
    return inflight_params(c, at, bytes);
}

static bool is_foreign(struct call *c, uint32_t client)
{
    WITH_TENANT(c->tenant);

    return client && !objects_find(&c->tenant->objects, client, client);
}

/* Objects that work on another client's, which their parameters name: RM would let any client of the same
 * process be named, and of others by what they share. A device it lets share the address space of anybody's
 * (deviceInitClientShare()). */
static bool names_foreign_client(struct call *c, uint32_t class_id)
{
    const struct rm_event *event = (const void *)c->params;
    const struct rm_debugger *debugger = (const void *)c->params;
    const struct rm_profiler *profiler = (const void *)c->params;
    const struct rm_device *device = (const void *)c->params;

    switch (rm_kind_of(class_id)) {
    case RM_KIND_EVENT:
        return is_foreign(c, event->client);
    case RM_KIND_DEBUGGER:
        return is_foreign(c, debugger->client);
    case RM_KIND_PROFILER:
        return is_foreign(c, profiler->client);
    case RM_KIND_DEVICE:
        return is_foreign(c, device->client_share) || is_foreign(c, device->target_client);
    default:
        return false;
    }
}

/* RM makes the page tables of virtual memory with it, of the card's memory: two GiB for a TiB
 * (virtmemConstruct() in virtual_mem.c). It is asked to make them when something is mapped there (map_dma.c).
 * Memory that has them in any case is charged. True where the caller had not asked for that itself. */
bool ask_without_tables(struct call *c, uint32_t class_id)
{
    enum { NOT_SO = RM_MEMORY_FLAG_LAZY | RM_MEMORY_FLAG_EXTERNALLY_MANAGED | RM_MEMORY_FLAG_SPARSE };
    struct rm_memory *mem = (void *)c->params;

    if (class_id != NV50_MEMORY_VIRTUAL || mem->flags & NOT_SO)
        return false;
    mem->flags |= RM_MEMORY_FLAG_LAZY;
    return true;
}

/* The handle of the device above the caller's subdevice; 0: it is none. */
static uint32_t device_above(const struct call *c, const struct creation *a)
{
    const struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find_kind(c, a->root, a->parent, RM_KIND_SUBDEVICE);

    return slot ? o->slot[o->slot[slot].parent].handle : 0;
}

/* Makes a page of the host's, of zeros, in place of one that shows all users of the card: no data in it has a
 * time, so none is valid (RUSD_TIMESTAMP_INVALID, cl00de.h). RM has such memory below the device alone. */
static struct answer make_blank_page(struct call *c, const struct creation *asked, uint32_t *handle)
{
    struct creation page = {.root = asked->root,
                            .parent = device_above(c, asked),
                            .handle = asked->handle,
                            .class_id = NV01_MEMORY_SYSTEM};
    struct rm_memory *mem = (void *)c->params;
    struct answer made;

    if (!page.parent)
        return answered(NV_ERR_INVALID_OBJECT_PARENT);
    *mem = (struct rm_memory){
        .owner = asked->root,
        .attr = RM_MEMORY_LOCATION_HOST << RM_MEMORY_ATTR_LOCATION_SHIFT | RM_MEMORY_ATTR_CACHED,
        .size = BLANK_PAGE_BYTES,
    };
    c->params_bytes = rm_bytes(&c->m->rm, RM_BYTES_NV_MEMORY_ALLOCATION_PARAMS);
    made = object_create(c, &c->file, &page);
    *handle = page.handle;
    return made;
}

static bool is_device(struct call *c, uint32_t client, uint32_t handle)
{
    WITH_TENANT(c->tenant);

    return call_find_kind(c, client, handle, RM_KIND_DEVICE);
}

static bool subdevice_of_grant(struct call *c, uint32_t client, uint32_t handle)
{
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find_kind(c, client, handle, RM_KIND_SUBDEVICE);

    return slot && c->tenant->granted[c->tenant->objects.slot[slot].card];
}

/* For a channel below a device RM makes a group that no call can name, of the channel's engine and address
 * space (kchannelConstruct_IMPL() in kernel_channel.c). It is made here, as RM would, so that there is none
 * that the scheduler does not have. libnvcuvid, libnvidia-encode and libcuda, where it moves a
 * process to the host, have such channels. */
static struct answer make_with_group(struct call *c, struct creation *a)
{
    struct creation group = {
        .root = a->root, .parent = a->parent, .class_id = KEPLER_CHANNEL_GROUP_A, .wraps = true};
    const struct rm_row *row = c->params_row;
    uint8_t params[RM_CHANNEL_MAX];
    uint32_t bytes = c->params_bytes;
    struct rm_channel channel;
    struct answer made;

    rm_channel_read(&c->m->rm, c->params, &channel);
    memcpy(params, c->params, bytes);
    c->params_row = rm_class_row(&c->m->rm, group.class_id);
    c->params_bytes = rm_bytes(&c->m->rm, c->params_row->bytes);
    memset(c->params, 0, c->params_bytes);
    *(struct rm_channel_group *)(void *)c->params = (struct rm_channel_group){
        .vaspace = channel.vaspace, .engine_type = channel.engine_type};
    made = object_create(c, &c->file, &group);
    c->params_row = row;
    c->params_bytes = bytes;
    memcpy(c->params, params, bytes);
    if (made.kind != ANSWER || made.rm_status != NV_OK)
        return made;
    a->parent = group.handle;
    ((struct rm_channel *)(void *)c->params)->vaspace = 0; /* in a group it has the group's */
    made = object_create(c, &c->file, a);
    ((struct rm_channel *)(void *)c->params)->vaspace = channel.vaspace;
    if (made.kind != ANSWER || made.rm_status != NV_OK) {
        c->params_bytes = 0; /* FREE takes none */
        object_free(c, a->root, group.handle);
        c->params_bytes = bytes;
    }
    return made;
}

/* Peer numbers and mailboxes belong to the cards, and other tenants use them too. RM takes the caller's
 * numbers unchecked (kbusCreateP2PMappingForNvlink_GP100()), and chooses its own if the caller names none. */
static uint32_t judge_peers(struct call *c, const struct creation *a)
{
    struct rm_p2p *p = (void *)c->params;

    if (!peers_are_served(c))
        return NV_ERR_INVALID_CLASS;
    if (!subdevice_of_grant(c, a->root, p->subdevice) || !subdevice_of_grant(c, a->root, p->peer))
        return NV_ERR_INVALID_ARGUMENT; /* as RM of a handle that is no subdevice */
    p->peer_ids = p->peers_ids = p->mailbox_bytes = p->egm_ids = p->peers_egm_ids = 0;
    p->mailbox = 0;
    return NV_OK;
}

/* Where an encoder's session names memory for its statistics, RM maps that without a reference, and reads it
 * once a second, also when it has been freed (nvencsessionConstruct_IMPL()). Nothing else needs it. */
static void leave_out_statistics(struct call *c)
{
    enum { VERSION = 3, MEMORY = 4 }; /* words of NVA0BC_ALLOC_PARAMETERS */
    uint32_t *word = (uint32_t *)(void *)c->params;

    if (c->params_bytes >= (MEMORY + 1) * sizeof(*word))
        word[VERSION] = word[MEMORY] = 0;
}

/* A mapper has a queue of the kernel's memory, as long as it asks for. NVIDIA's libraries ask for so many. */
static bool is_too_long(const struct call *c)
{
    enum { QUEUE_AT = 4, QUEUE_MAX = 8192 }; /* maxQueueSize of NV_MEMORY_MAPPER_ALLOCATION_PARAMS */
    uint32_t asked = 0;

    if (c->params_bytes >= QUEUE_AT + sizeof(asked))
        memcpy(&asked, c->params + QUEUE_AT, sizeof(asked));
    return asked > QUEUE_MAX;
}

/* Programs open a card's file for each event and make the event on it; compute-sanitizer uses another control
 * file. RM allows that for these two classes alone. False: no file of the client's is known. */
static bool file_of_event(struct call *c, uint32_t root, struct open_file *out)
{
    uint32_t slot;

    if (c->file.kind != NODE_CTL)
        return call_control_file(c, out);
    WITH_TENANT(c->tenant);
    slot = objects_find(&c->tenant->objects, root, root);
    return slot && files_by_id(c->m->files, c->tenant->objects.slot[slot].file, out) &&
           out->tenant == c->tenant;
}

static struct answer make(struct call *c, struct creation *a)
{
    enum rm_kind kind = c->params_row->kind;
    bool instance = kind == RM_KIND_GPU_INSTANCE || kind == RM_KIND_COMPUTE_INSTANCE, lazily;
    bool callers = (kind == RM_KIND_ROOT || instance) && call_is_callers(c);
    struct open_file file = c->file;
    uint32_t status = NV_OK;
    struct answer made;

    if (names_foreign_client(c, a->class_id))
        return answered(NV_ERR_INVALID_CLIENT);
    if (kind == RM_KIND_P2P && (status = judge_peers(c, a)))
        return answered(status);
    if (kind == RM_KIND_MAPPER && is_too_long(c))
        return answered(NV_ERR_NO_MEMORY);
    if (a->class_id == NVENC_SW_SESSION)
        leave_out_statistics(c);
    if (kind == RM_KIND_EVENT && !file_of_event(c, a->root, &file))
        return answered(NV_ERR_INVALID_CLIENT);
    WITH_CALLS_OF(c->tenant);
    if (kind == RM_KIND_SHARED_DATA && !(c->tenant->whole && c->params_bytes))
        return make_blank_page(c, a, &a->handle);
    if (callers)
        return instance ? mig_subscribe(c, a) : continued_make(c, a);
    lazily = ask_without_tables(c, a->class_id);
    if (kind == RM_KIND_CHANNEL && c->params_bytes && is_device(c, a->root, a->parent))
        made = make_with_group(c, a);
    else
        made = object_create(c, &file, a);
    if (lazily)
        ((struct rm_memory *)(void *)c->params)->flags &= ~(uint32_t)RM_MEMORY_FLAG_LAZY;
    c->params_out = made.kind == ANSWER && made.rm_status == NV_OK && c->params_bytes != 0;
    return made;
}

/* Both layouts begin alike. */
struct answer mediate_alloc(struct call *c)
{
    struct rm_alloc_short *o = (void *)c->outer;
    struct creation a = {.root = o->root, .parent = o->parent, .handle = o->handle, .class_id = o->class_id};
    int e = fetch_params(c, o->class_id, o->params);
    struct answer made = e < 0 ? answer_of(e) : make(c, &a);

    if (made.kind == ANSWER && !c->passed)
        o->handle = a.handle;
    return made;
}

/* An allocation without parameters. Root clients have the other ways. */
struct answer mediate_alloc_object(struct call *c)
{
    const struct rm_alloc_object *o = (const void *)c->outer;
    struct creation a = {.root = o->root, .parent = o->parent, .handle = o->handle, .class_id = o->class_id};

    if (rm_row_params(&c->m->rm, c->params_row) != 0 || c->params_row->kind == RM_KIND_SHARED_DATA ||
        rm_kind_of(a.class_id) == RM_KIND_ROOT)
        return answered(NV_ERR_INVALID_CLASS);
    WITH_CALLS_OF(c->tenant);
    return object_create(c, &c->file, &a);
}

struct answer mediate_free(struct call *c)
{
    const struct rm_free *f = (const void *)c->outer;

    WITH_CALLS_OF(c->tenant);
    return object_free(c, f->root, f->handle);
}
