#include "uvm.h"
#include <stdlib.h>
#include <string.h>

enum { PAGE_MASK = 4095, LAST_MAPPING_TYPE = 3 /* UvmGpuMappingTypeReadOnly */ };

struct mapping {
    struct mapping *next;
    uint64_t base, end;
    const struct sim_card *card; /* in whose space */
    struct rm_object *memory;    /* our own name for it, below the card that it lies on */
};

struct uvm_range_of {
    struct uvm_range_of *next;
    uint64_t base, end;
    struct mapping *mappings;
};

static uint8_t hex_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool is_named(const struct sim_card *card, const uint8_t uuid[UVM_UUID_BYTES])
{
    const char *text = card->uuid + strlen("GPU-");

    for (uint32_t i = 0; i < UVM_UUID_BYTES; i++, text += 2) {
        text += *text == '-';
        if (uuid[i] != (uint8_t)(hex_digit(text[0]) << 4 | hex_digit(text[1])))
            return false;
    }
    return true;
}

struct sim_card *uvm_card_named(struct rm *rm, const uint8_t uuid[UVM_UUID_BYTES])
{
    for (uint32_t i = 0; i < rm->card_count; i++)
        if (is_named(&rm->cards[i], uuid))
            return &rm->cards[i];
    return NULL;
}

struct uvm_card *uvm_card_of(struct rm *rm, struct uvm *uvm, const uint8_t uuid[UVM_UUID_BYTES],
                             struct sim_card **card)
{
    *card = uvm_card_named(rm, uuid);
    return *card && uvm->card[(*card)->index].is_registered ? &uvm->card[(*card)->index] : NULL;
}

bool uvm_may_have(const struct rm_call *call, const struct uvm *uvm, const struct rm_object *object)
{
    bool may;

    uvm->client->tgid = call->tgid;
    may = may_dup(object, uvm->client);
    uvm->client->tgid = 0;
    return may;
}

uint32_t uvm_range_policy(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_range *range = call->outer;

    return managed_covers(&uvm->managed, range->base, range->length) ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

static struct uvm_range_of **range_at(struct uvm *uvm, uint64_t base, uint64_t end)
{
    struct uvm_range_of **at = &uvm->ranges;

    while (*at && (base < (*at)->base || end > (*at)->end))
        at = &(*at)->next;
    return at;
}

bool uvm_has_range(struct uvm *uvm, uint64_t address)
{
    return *range_at(uvm, address, address + 1);
}

static void unmap(struct rm *rm, struct uvm *uvm, struct mapping **at)
{
    struct mapping *mapping = *at;
    struct vaspace *vaspace = uvm->card[mapping->card->index].vaspace;

    *at = mapping->next;
    if (vaspace)
        vaspace_forget(vaspace, mapping);
    object_free(rm, mapping->memory);
    free(mapping);
}

uint32_t uvm_create_range(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_range *asked = call->outer;
    uint64_t end = asked->base + asked->length;
    struct uvm_range_of *range;

    if (!asked->base || end <= asked->base || (asked->base | asked->length) & PAGE_MASK)
        return NV_ERR_INVALID_ADDRESS;
    for (range = uvm->ranges; range; range = range->next)
        if (asked->base < range->end && end > range->base)
            return NV_ERR_UVM_ADDRESS_IN_USE;
    range = calloc(1, sizeof *range);
    if (!range)
        return NV_ERR_NO_MEMORY;
    *range = (struct uvm_range_of){.next = uvm->ranges, .base = asked->base, .end = end};
    uvm->ranges = range;
    return NV_OK;
}

uint32_t uvm_create_pool(struct rm_call *call, struct uvm *uvm)
{
    uint64_t cards = *(const uint64_t *)((const char *)call->outer + call->outer_bytes - 2 * sizeof cards);
    uint64_t most = (call->outer_bytes - sizeof(struct uvm_range) - 2 * sizeof cards) /
                    sizeof(struct uvm_map_external_gpu);

    return cards > most ? NV_ERR_INVALID_ARGUMENT : uvm_create_range(call, uvm);
}

uint32_t uvm_create_region(struct rm_call *call, struct uvm *uvm)
{
    const uint8_t *gpu = (const uint8_t *)call->outer + sizeof(struct uvm_range);
    const struct uvm_range *asked = call->outer;
    struct sim_card *card;

    if ((asked->base | asked->length) & PAGE_MASK)
        return NV_ERR_INVALID_ADDRESS;
    return uvm_card_of(call->rm, uvm, gpu, &card) ? uvm_create_range(call, uvm) : NV_ERR_INVALID_DEVICE;
}

static void free_range(struct rm *rm, struct uvm *uvm, struct uvm_range_of **at)
{
    struct uvm_range_of *range = *at;

    *at = range->next;
    while (range->mappings)
        unmap(rm, uvm, &range->mappings);
    free(range);
}

/* From 590.44 on the base alone is said. */
uint32_t uvm_free_range(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_range *asked = call->outer;
    bool has_length = call->outer_bytes > sizeof(uint64_t) + UVM_STATUS_FROM_END;
    struct uvm_range_of **at = range_at(uvm, asked->base, asked->base + 1);

    if (!*at || (*at)->base != asked->base || (has_length && (*at)->end - asked->base != asked->length))
        return NV_ERR_INVALID_ADDRESS;
    free_range(call->rm, uvm, at);
    return NV_OK;
}

uint32_t uvm_validate_range(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_range *asked = call->outer;

    const struct uvm_range_of *range = *range_at(uvm, asked->base, asked->base + asked->length);

    /* One that is not managed is named as it was made. */
    if (range)
        return range->base == asked->base && range->end == asked->base + asked->length
                   ? NV_OK
                   : NV_ERR_INVALID_ADDRESS;
    return uvm_range_policy(call, uvm);
}

/* Whatever else of the card's was there ends, as far as it lies in these addresses. */
static void unmap_between(struct rm *rm, struct uvm *uvm, struct uvm_range_of *range,
                          const struct sim_card *card, uint64_t base, uint64_t end)
{
    for (struct mapping **at = &range->mappings; *at;)
        if ((*at)->card == card && (*at)->base >= base && (*at)->end <= end)
            unmap(rm, uvm, at);
        else
            at = &(*at)->next;
}

static uint32_t map_on(struct rm_call *call, struct uvm *uvm, const uint8_t *gpu, struct rm_object *memory,
                       struct uvm_range_of *range)
{
    const struct uvm_map_external_begin *begin = call->outer;
    struct sim_card *card;
    const struct uvm_card *of = uvm_card_of(call->rm, uvm, gpu, &card), *lies = of;
    uint64_t base = begin->range.base, length = begin->range.length;
    struct mapping *mapping;

    if (!of || !of->vaspace)
        return NV_ERR_INVALID_DEVICE;
    if (memory->class_id == NV01_MEMORY_LOCAL_USER && memory->card != card) {
        if (!(of->peers & 1u << memory->card->index))
            return NV_ERR_INVALID_DEVICE;
        lies = &uvm->card[memory->card->index];
    }
    unmap_between(call->rm, uvm, range, card, base, base + length);
    mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return NV_ERR_NO_MEMORY;
    mapping->card = card;
    mapping->base = base;
    mapping->end = base + length;
    mapping->memory = object_alias(call->rm, lies->device, object_new_handle(call->rm, uvm->client), memory);
    if (!mapping->memory ||
        !(pages_unreached(memory) ||
          vaspace_map(of->vaspace, base, length, memory->memory, begin->offset, mapping))) {
        if (mapping->memory)
            object_free(call->rm, mapping->memory);
        free(mapping);
        return NV_ERR_NO_MEMORY;
    }
    mapping->next = range->mappings;
    range->mappings = mapping;
    return NV_OK;
}

uint32_t uvm_map_external(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_map_external_begin *begin = call->outer;
    const struct uvm_map_external_gpu *gpu = (const void *)(begin + 1);
    const struct uvm_map_external_end *end = (const void *)((char *)call->outer + call->outer_bytes -
                                                            sizeof *end);
    uint64_t most = (call->outer_bytes - sizeof *begin - sizeof *end) / sizeof *gpu;
    uint64_t base = begin->range.base, length = begin->range.length;
    struct uvm_range_of *range = base + length > base ? *range_at(uvm, base, base + length) : NULL;
    struct rm_object *memory = object_find(call->rm, end->client, end->memory);
    uint32_t status = NV_OK;

    if (!range || (base | length | begin->offset) & PAGE_MASK)
        return NV_ERR_INVALID_ADDRESS;
    if (!end->gpus || end->gpus > most)
        return NV_ERR_INVALID_ARGUMENT;
    if (!memory && client_handle_taken(call->rm, end->client))
        return NV_ERR_OBJECT_NOT_FOUND;
    if (!memory || !class_has_names(memory->class_id))
        return NV_ERR_INVALID_OBJECT_HANDLE;
    if (!uvm_may_have(call, uvm, memory))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    if (begin->offset > mappable_bytes(memory) || length > mappable_bytes(memory) - begin->offset)
        return NV_ERR_INVALID_OFFSET;
    for (uint64_t i = 0; i < end->gpus; i++)
        if (gpu[i].attributes[0] > LAST_MAPPING_TYPE)
            return NV_ERR_INVALID_ARGUMENT;
    for (uint64_t i = 0; i < end->gpus && !status; i++)
        status = map_on(call, uvm, gpu[i].gpu, memory, range);
    return status;
}

uint32_t uvm_unmap_external(struct rm_call *call, struct uvm *uvm)
{
    const struct uvm_unmap_external *asked = call->outer;
    uint64_t base = asked->range.base, end = base + asked->range.length;
    struct uvm_range_of *range = end > base ? *range_at(uvm, base, end) : NULL;
    struct sim_card *card;
    const struct uvm_card *of = uvm_card_of(call->rm, uvm, asked->gpu, &card);

    if (!range)
        return NV_ERR_INVALID_ADDRESS;
    if (!of)
        return NV_ERR_INVALID_DEVICE;
    if (!of->vaspace)
        return NV_OK; /* nothing is mapped there */
    unmap_between(call->rm, uvm, range, card, base, end);
    vaspace_unmap(of->vaspace, base, end - base);
    return NV_OK;
}

void uvm_ranges_leave(struct rm *rm, struct uvm *uvm, const struct sim_card *card)
{
    for (struct uvm_range_of *range = uvm->ranges; range; range = range->next)
        unmap_between(rm, uvm, range, card, range->base, range->end);
}

static bool is_of(const struct mapping *mapping, const struct sim_card *on, const struct sim_card *lies)
{
    return mapping->card == on && mapping->memory->class_id == NV01_MEMORY_LOCAL_USER &&
           mapping->memory->card == lies;
}

void uvm_ranges_part(struct rm *rm, struct uvm *uvm, const struct sim_card *one, const struct sim_card *other)
{
    for (struct uvm_range_of *range = uvm->ranges; range; range = range->next)
        for (struct mapping **at = &range->mappings; *at;)
            if (is_of(*at, one, other) || is_of(*at, other, one))
                unmap(rm, uvm, at);
            else
                at = &(*at)->next;
}

void uvm_ranges_end(struct rm *rm, struct uvm *uvm)
{
    while (uvm->ranges)
        free_range(rm, uvm, &uvm->ranges);
}
