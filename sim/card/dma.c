/* MAP_MEMORY_DMA: memory at an address of an address space without nvidia-uvm, by way of a virtual memory
 * object. What is mapped so ends with the memory or with that object (RsInterMapping in rs_resource.h of
 * NVIDIA's open-gpu-kernel-modules). */
#include "rm.h"
#include <stdlib.h>
#include <string.h>

enum { PAGE_MASK = 4095, BIG_PAGE = 64 << 10, OFFSET_IS_FIXED = 1 << 15 };

struct dma_mapping {
    struct dma_mapping *next;
    const struct rm_object *virtual_memory, *memory;
    struct vaspace *vaspace;
    uint64_t base, length;
    uint32_t device; /* by which it was made, a handle */
};

static bool is_virtual(uint32_t class_id)
{
    return class_id == NV01_MEMORY_VIRTUAL || class_id == NV50_MEMORY_VIRTUAL;
}

enum { ADDRESS_BITS = 49 };

/* Of the class that has memory's parameters; no card has more addresses. */
static uint32_t asked_status(struct rm_call *call)
{
    struct rm_memory *params = call->params;
    uint32_t status;
    uint64_t page;

    if (call->params_bytes < offsetof(struct rm_memory, numa_node))
        return NV_ERR_INVALID_ARGUMENT;
    status = memory_params_status(params);
    if (status)
        return status;
    if (!(params->flags & RM_MEMORY_FLAG_VIRTUAL))
        return NV_ERR_INVALID_ARGUMENT;
    if (params->size > 1ull << ADDRESS_BITS)
        return NV_ERR_INSUFFICIENT_RESOURCES;
    page = memory_page_bytes(params);
    params->size = (params->size + page - 1) & ~(page - 1);
    return NV_OK;
}

/* In the address space that it names, or in the device's own. */
uint32_t virtual_memory_alloc(struct rm_call *call, struct rm_object *object)
{
    enum { IN_NONE = -1 }; /* NV_MEMORY_VIRTUAL_SYSMEM_DYNAMIC_HVASPACE */
    uint32_t vaspace = 0, status = object->class_id == NV50_MEMORY_VIRTUAL ? asked_status(call) : NV_OK;
    const struct rm_object *of = object->parent;

    if (status)
        return status;
    if (object->class_id == NV01_MEMORY_VIRTUAL && call->params_bytes >= sizeof(struct rm_virtual_memory))
        vaspace = ((const struct rm_virtual_memory *)call->params)->vaspace;
    else if (object->class_id == NV50_MEMORY_VIRTUAL)
        vaspace = ((const struct rm_memory *)call->params)->vaspace;
    if (object->class_id == NV01_MEMORY_VIRTUAL && vaspace == (uint32_t)IN_NONE)
        return (object->vaspace = vaspace_create()) ? NV_OK : NV_ERR_NO_MEMORY;
    if (vaspace)
        of = object_find(call->rm, object->client->root.handle, vaspace);
    if (!of)
        return NV_ERR_OBJECT_NOT_FOUND;
    if (vaspace && of->class_id != FERMI_VASPACE_A)
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (object->class_id == NV50_MEMORY_VIRTUAL && vaspace_is_uvms(of->vaspace))
        return NV_ERR_INSUFFICIENT_RESOURCES; /* its addresses are nvidia-uvm's to give */
    object->vaspace = vaspace_take(of->vaspace);
    return NV_OK;
}

static void end(struct dma_mapping **at)
{
    struct dma_mapping *mapping = *at;

    *at = mapping->next;
    vaspace_forget(mapping->vaspace, mapping);
    vaspace_put(mapping->vaspace);
    free(mapping);
}

void dma_forget(struct rm *rm, const struct rm_object *object)
{
    for (struct dma_mapping **at = &rm->dma_mappings; *at;)
        if ((*at)->memory == object || (*at)->virtual_memory == object)
            end(at);
        else
            at = &(*at)->next;
}

/* What a channel computes with has a page by which its work starts more, and which holds no data
 * (kgrobjSetComputeMmio_IMPL() in kernel_graphics_object.c). */
static bool has_launch_page(const struct rm_object *object)
{
    enum { OF_COMPUTE = 0xc0 };

    return class_is_channel(object->parent->class_id) && (object->class_id & 0xff) == OF_COMPUTE;
}

/* names: how both structs begin. */
static uint32_t find(struct rm_call *call, const struct rm_map_dma *names, struct rm_object **virtual_memory,
                     struct rm_object **memory)
{
    uint32_t status = client_status(call->rm, names->client, call->file);

    if (status)
        return status;
    *virtual_memory = object_find(call->rm, names->client, names->virtual_memory);
    *memory = object_find(call->rm, names->client, names->memory);
    if (!*virtual_memory || !*memory || !object_find(call->rm, names->client, names->device))
        return NV_ERR_OBJECT_NOT_FOUND;
    if (!is_virtual((*virtual_memory)->class_id) ||
        !(class_has_names((*memory)->class_id) || has_launch_page(*memory)))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    return NV_OK;
}

/* Behind all that is mapped there, where RM is to choose. */
static uint64_t free_base(const struct rm *rm, const struct vaspace *vaspace)
{
    enum { LOWEST = 2 << 20 };
    uint64_t base = LOWEST;

    for (const struct dma_mapping *at = rm->dma_mappings; at; at = at->next)
        if (at->vaspace == vaspace && at->base + at->length > base)
            base = at->base + at->length;
    return (base + BIG_PAGE - 1) & ~(uint64_t)(BIG_PAGE - 1);
}

static bool is_taken(const struct rm *rm, const struct vaspace *vaspace, uint64_t base, uint64_t length)
{
    for (const struct dma_mapping *at = rm->dma_mappings; at; at = at->next)
        if (at->vaspace == vaspace && base < at->base + at->length && at->base < base + length)
            return true;
    return false;
}

static uint32_t map(struct rm_call *call, const struct rm_map_dma *asked, uint64_t *at)
{
    struct rm_object *virtual_memory, *memory;
    uint32_t status = asked->length ? find(call, asked, &virtual_memory, &memory) : NV_ERR_INVALID_LIMIT;
    struct dma_mapping *mapping;
    uint64_t bytes, base;

    if (status)
        return status;
    bytes = has_launch_page(memory) ? PAGE_MASK + 1 : mappable_bytes(memory);
    if (asked->offset >= bytes || asked->length > bytes - asked->offset)
        return NV_ERR_INVALID_LIMIT;
    base = asked->flags & OFFSET_IS_FIXED ? *at : free_base(call->rm, virtual_memory->vaspace);
    if ((base | asked->offset | asked->length) & PAGE_MASK || base + asked->length < base)
        return NV_ERR_INVALID_ARGUMENT;
    if (is_taken(call->rm, virtual_memory->vaspace, base, asked->length))
        return NV_ERR_NO_MEMORY;
    *at = base;
    mapping = malloc(sizeof *mapping);
    if (!mapping)
        return NV_ERR_NO_MEMORY;
    *mapping = (struct dma_mapping){
        .next = call->rm->dma_mappings,
        .virtual_memory = virtual_memory,
        .memory = memory,
        .device = asked->device,
        .vaspace = virtual_memory->vaspace,
        .base = base,
        .length = asked->length,
    };
    if (!(pages_unreached(memory) || has_launch_page(memory) ||
          vaspace_map(mapping->vaspace, base, asked->length, memory->memory, asked->offset, mapping))) {
        free(mapping);
        return NV_ERR_NO_MEMORY;
    }
    vaspace_take(mapping->vaspace);
    call->rm->dma_mappings = mapping;
    return NV_OK;
}

/* Of a part all is unmapped, since nothing here looks at what is left. */
static uint32_t unmap(struct rm_call *call, const struct rm_unmap_dma *asked, uint64_t part)
{
    const struct rm_object *virtual_memory = object_find(call->rm, asked->client, asked->virtual_memory);
    const struct rm_object *memory = object_find(call->rm, asked->client, asked->memory);
    uint32_t status = client_status(call->rm, asked->client, call->file);

    if (status)
        return status;
    if (!virtual_memory || !object_find(call->rm, asked->client, asked->device) || (asked->memory && !memory))
        return NV_ERR_OBJECT_NOT_FOUND;
    for (struct dma_mapping **at = &call->rm->dma_mappings; *at; at = &(*at)->next)
        if ((!memory || (*at)->memory == memory) && (*at)->virtual_memory == virtual_memory &&
            (*at)->device == asked->device &&
            (part ? asked->base - (*at)->base < (*at)->length : (*at)->base == asked->base)) {
            end(at);
            return NV_OK;
        }
    return part ? NV_OK : NV_ERR_OBJECT_NOT_FOUND; /* serverInterUnmapInternal() in rs_server.c */
}

static void say(struct rm_call *call, uint32_t status)
{
    struct rm_unmap_dma_end *end = (void *)((char *)call->outer + call->outer_bytes - sizeof *end);

    end->status = status;
}

int map_dma(struct rm_call *call)
{
    struct rm_map_dma_end *end = (void *)((char *)call->outer + call->outer_bytes - sizeof *end);

    say(call, map(call, call->outer, &end->base));
    return 0;
}

int unmap_dma(struct rm_call *call)
{
    const struct rm_unmap_dma *asked = call->outer;
    uint64_t part = 0; /* 0: all, as of drivers that know no parts */

    memcpy(&part, asked + 1, call->outer_bytes - sizeof *asked - sizeof(struct rm_unmap_dma_end));
    say(call, unmap(call, asked, part));
    return 0;
}
