/* The older ways to allocate memory, VID_HEAP and ALLOC_MEMORY. RM itself turns both into an allocation by
 * class (rmapi_deprecated_vidheapctrl.c, rmapi_deprecated_allocmemory.c); so does the mediator, and there is
 * one way to account. */
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/rm/create.h"
#include "native_sched/nvidia/boundary/rm/host_memory.h"
#include "older.h"
#include <errno.h>
#include <string.h>

static uint32_t location_of(uint32_t attr)
{
    return attr >> RM_MEMORY_ATTR_LOCATION_SHIFT & RM_MEMORY_ATTR_LOCATION_MASK;
}

static struct rm_memory *empty_params(struct call *c)
{
    int bytes = rm_class_params(&c->m->rm, NV01_MEMORY_LOCAL_USER);

    memset(c->params, 0, sizeof(struct rm_memory));
    c->params_bytes = (uint32_t)bytes;
    return (struct rm_memory *)(void *)c->params;
}

/* The fields that every kind of allocation has, under the same names. */
#define COPY_SAME(to, from)                      \
    do {                                         \
        (to)->owner = (from)->owner;             \
        (to)->type = (from)->type;               \
        (to)->flags = (from)->flags;             \
        (to)->attr = (from)->attr;               \
        (to)->attr2 = (from)->attr2;             \
        (to)->format = (from)->format;           \
        (to)->compr_covg = (from)->compr_covg;   \
        (to)->zcull_covg = (from)->zcull_covg;   \
        (to)->size = (from)->size;               \
        (to)->alignment = (from)->alignment;     \
        (to)->offset = (from)->offset;           \
        (to)->limit = (from)->limit;             \
        (to)->ctag_offset = (from)->ctag_offset; \
    } while (0)

/* Where it may lie, which counts with a flag alone: NVIDIA's libraries of graphics give all addresses
 * without. */
#define COPY_RANGE(to, from)                                \
    do {                                                    \
        if ((from)->flags & RM_MEMORY_FLAG_USE_BEGIN_END) { \
            (to)->range_lo = (from)->range_lo;              \
            (to)->range_hi = (from)->range_hi;              \
        }                                                   \
    } while (0)

/* -ENOTSUP: not a function that allocates. */
static int heap_params(const struct rm_heap *h, struct rm_memory *mem)
{
    switch (h->function) {
    case RM_HEAP_ALLOC_SIZE:
        COPY_SAME(mem, &h->by_size);
        COPY_RANGE(mem, &h->by_size);
        mem->width = h->by_size.width;
        mem->height = h->by_size.height;
        return 0;
    case RM_HEAP_ALLOC_PITCH_HEIGHT:
        COPY_SAME(mem, &h->by_pitch);
        COPY_RANGE(mem, &h->by_pitch);
        mem->width = h->by_pitch.width;
        mem->height = h->by_pitch.height;
        mem->pitch = h->by_pitch.pitch;
        return 0;
    case RM_HEAP_ALLOC_SIZE_RANGE:
        COPY_SAME(mem, &h->by_range);
        mem->range_lo = h->by_range.range_lo;
        mem->range_hi = h->by_range.range_hi;
        return 0;
    default:
        return -ENOTSUP;
    }
}

static void heap_answer(struct rm_heap *h, const struct rm_memory *mem)
{
    if (h->function == RM_HEAP_ALLOC_SIZE)
        COPY_SAME(&h->by_size, mem);
    else if (h->function == RM_HEAP_ALLOC_PITCH_HEIGHT)
        COPY_SAME(&h->by_pitch, mem);
    else
        COPY_SAME(&h->by_range, mem);
    if (h->function == RM_HEAP_ALLOC_PITCH_HEIGHT)
        h->by_pitch.pitch = mem->pitch;
}

/* Bytes in the card and free in it, as the tenant has them. False when the call names no card. */
static bool heap_view(struct call *c, struct rm_heap *h)
{
    const struct objects *o = &c->tenant->objects;
    WITH_TENANT(c->tenant);
    uint32_t slot = call_find(c, h->root, h->parent), card = slot ? o->slot[slot].card : OBJECT_NO_CARD;
    const struct ledger *l = &c->tenant->ledger[card == OBJECT_NO_CARD ? 0 : card];

    if (card == OBJECT_NO_CARD)
        return false;
    h->total = l->cap_bytes;
    h->free = ledger_free_bytes(l);
    return true;
}

static struct answer heap_allocate(struct call *c, struct rm_heap *h)
{
    struct rm_memory *mem = empty_params(c);
    struct creation a = {.root = h->root, .parent = h->parent};
    struct answer made;
    bool lazily;

    if (heap_params(h, mem) < 0 ||
        (!(mem->flags & RM_MEMORY_FLAG_VIRTUAL) && location_of(mem->attr) > RM_MEMORY_LOCATION_HOST))
        return answered(NV_ERR_NOT_SUPPORTED);
    mem->vaspace = h->vaspace;
    a.handle = mem->flags & RM_HEAP_HANDLE_PROVIDED ? h->any.handle : 0;
    a.class_id = mem->flags & RM_MEMORY_FLAG_VIRTUAL                  ? NV50_MEMORY_VIRTUAL
                 : location_of(mem->attr) == RM_MEMORY_LOCATION_VIDEO ? NV01_MEMORY_LOCAL_USER
                                                                      : NV01_MEMORY_SYSTEM;
    lazily = ask_without_tables(c, a.class_id);
    made = object_create(c, &c->file, &a);
    if (lazily)
        mem->flags &= ~(uint32_t)RM_MEMORY_FLAG_LAZY;
    if (made.kind != ANSWER || made.rm_status != NV_OK)
        return made;
    heap_answer(h, mem);
    h->any.handle = a.handle;
    heap_view(c, h);
    return made;
}

struct answer mediate_heap(struct call *c)
{
    struct rm_heap *h = (void *)c->outer;
    uint64_t most;
    bool found;
    int e;

    WITH_CALLS_OF(c->tenant);
    switch (h->function) {
    case RM_HEAP_FREE:
        return object_free(c, h->root, h->any.handle);
    case RM_HEAP_INFO:
        while ((e = close_wait(c)) > 0)
            ;
        if (e < 0)
            return failed(e);
        found = heap_view(c, h);
        most = found ? h->free : 0;
        h->info.offset = h->info.base = 0;
        h->info.size = most;
        return answered(found ? NV_OK : NV_ERR_INVALID_OBJECT_HANDLE);
    default:
        return heap_allocate(c, h);
    }
}

/* The caller pins its own pages. Whatever class another thread puts into its arguments meanwhile, RM makes no
 * memory of a card by this call: of video memory it makes an empty object (_rmAllocMemoryLocalUser()), and
 * page lists, memory by its place and the console's are for administrators (resource_list.h, 535 to 595). The
 * object is taken into the account when it is to be mapped (objects/pages.h). */
static struct answer host_pages(struct call *c)
{
    const struct rm_alloc_memory *o = (const void *)c->outer;

    if (host_memory_lacks(o->limit))
        return answered(NV_ERR_NO_MEMORY);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    return c->m->ops->as_caller ? continued_as_caller(c) : continued();
}

/* Host memory that RM would map into its caller. libnvcuvid and libnvidia-encode need it, so their call is
 * continued; other callers use ALLOC and MAP_MEMORY. */
static bool is_for_caller(struct call *c, const struct rm_alloc_memory *o)
{
    bool mapped = rm_kind_of(o->class_id) == RM_KIND_HOST_MEMORY &&
                  !((uint32_t)o->flags >> RM_ALLOC_MEMORY_MAPPING_SHIFT);

    return (o->class_id == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR || (mapped && c->tenant->capabilities)) &&
           call_is_callers(c);
}

/* What users other than administrators get by the classes of all video memory and of the card's registers: a
 * name of nothing, of which the first tells how much memory there is (_rmAllocMemoryLocalUser()). NVIDIA's
 * libraries of graphics make one of each. */
static struct answer name_nothing(struct call *c, const struct open_file *control, struct creation *a)
{
    enum { NO_ADDRESS_SPACE = -1 }; /* NV_MEMORY_VIRTUAL_SYSMEM_DYNAMIC_HVASPACE */
    struct rm_alloc_memory *o = (void *)c->outer;
    struct answer made;
    uint32_t slot;

    a->class_id = NV01_MEMORY_VIRTUAL;
    *(struct rm_virtual_memory *)(void *)c->params = (struct rm_virtual_memory){.vaspace = NO_ADDRESS_SPACE};
    c->params_bytes = sizeof(struct rm_virtual_memory);
    made = object_create(c, control, a);
    if (made.kind != ANSWER || made.rm_status != NV_OK)
        return made;
    WITH_TENANT(c->tenant);
    slot = call_find_on(c, control, a->root, a->handle);
    o->handle = a->handle;
    o->limit = rm_kind_of(o->class_id) == RM_KIND_VIDEO_MEMORY && slot
                   ? c->tenant->ledger[c->tenant->objects.slot[slot].card].cap_bytes - 1
                   : UINT32_MAX;
    return made;
}

struct answer mediate_alloc_memory(struct call *c)
{
    struct rm_alloc_memory *o = (void *)c->outer;
    struct creation a = {.root = o->root, .parent = o->parent, .handle = o->handle, .class_id = o->class_id};
    bool host = rm_kind_of(o->class_id) == RM_KIND_HOST_MEMORY;
    struct open_file control;
    struct rm_memory *mem;
    struct answer made;

    if (is_for_caller(c, o))
        return host_pages(c);
    if (rm_kind_of(o->class_id) != RM_KIND_VIDEO_MEMORY && o->class_id != NV01_MEMORY_LOCAL_PRIVILEGED &&
        !(host && (uint32_t)o->flags >> RM_ALLOC_MEMORY_MAPPING_SHIFT))
        return answered(NV_ERR_NOT_SUPPORTED);
    if (o->limit == UINT64_MAX)
        return answered(NV_ERR_INVALID_ARGUMENT);
    WITH_CALLS_OF(c->tenant);
    if (c->file.kind != NODE_CARD || !call_control_file(c, &control))
        return answered(NV_ERR_INVALID_CLIENT);
    if (!host)
        return name_nothing(c, &control, &a);
    mem = empty_params(c);
    mem->owner = o->root;
    mem->size = o->limit + 1;
    mem->attr = RM_MEMORY_LOCATION_HOST << RM_MEMORY_ATTR_LOCATION_SHIFT;
    made = object_create(c, &control, &a);
    if (made.kind == ANSWER && made.rm_status == NV_OK) {
        o->handle = a.handle;
        o->limit = mem->size - 1;
    }
    return made;
}
