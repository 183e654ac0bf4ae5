/* Memory that cards reach beside the one that it lies on: an external range of nvidia-uvm at its own address,
 * mapped on each of them. Two cards are peers while anything needs that. */
#include "../../native_sched/nvidia/rm/peers_abi.h"
#include "../abi/uvm_sizes.h"
#include "access.h"
#include "pool.h"
#include <string.h>

enum { PAGE_MASK = 4095, P2P_MAX = 88 };

/* By the cards' numbers, the lower first: NV50_P2P. 0: they are no peers. */
static uint32_t pairs[RM_MAX_CARDS][RM_MAX_CARDS];

static uint32_t number_of(const struct rmc *rm, const struct rmc_card *card)
{
    return (uint32_t)(card - rm->cards);
}

static uint64_t pages_of(const struct range *range)
{
    return (range->bytes + PAGE_MASK) & ~(uint64_t)PAGE_MASK;
}

static struct uvm_peers names_of(const struct rmc *rm, uint32_t one, uint32_t other)
{
    struct uvm_peers names = {.status = 0};

    rmc_uuid(&rm->cards[one], names.gpu);
    rmc_uuid(&rm->cards[other], names.other);
    return names;
}

static uint32_t make_pair(const struct rmc *rm, uint32_t one, uint32_t other)
{
    uint32_t *pair = one < other ? &pairs[one][other] : &pairs[other][one];
    union {
        struct rm_p2p p2p;
        uint8_t all[P2P_MAX];
    } params = {.p2p = {.subdevice = rm->cards[one].subdevice, .peer = rm->cards[other].subdevice}};
    struct uvm_peers names = names_of(rm, one, other);
    uint32_t status;

    if (*pair)
        return NV_OK;
    status = uvm_join(rm);
    if (!status)
        status = rmc_alloc(rm, rm->client, pair, NV50_P2P, &params, sizeof params);
    if (!status)
        status = rmc_uvm(rm, uvm_file(), UVM_ENABLE_PEER_ACCESS, &names);
    if (status && *pair) {
        rmc_free(rm, *pair);
        *pair = 0;
    }
    return status;
}

CUresult reach_pair(const struct rmc *rm, const struct rmc_card *one, const struct rmc_card *other)
{
    return from_rm(make_pair(rm, number_of(rm, one), number_of(rm, other)));
}

static bool is_needed(const struct rmc *rm, uint32_t one, uint32_t other)
{
    const struct range *range;

    if (access_between(&rm->cards[one], &rm->cards[other]))
        return true;
    for (size_t i = 0; (range = range_number(i)); i++)
        if (range->reached && ((range->card == &rm->cards[one] && range->reached & 1u << other) ||
                               (range->card == &rm->cards[other] && range->reached & 1u << one)))
            return true;
    return false;
}

static void end_pairs(const struct rmc *rm)
{
    for (uint32_t one = 0; one < rm->card_count; one++)
        for (uint32_t other = one + 1; other < rm->card_count; other++) {
            struct uvm_peers names;

            if (!pairs[one][other] || is_needed(rm, one, other))
                continue;
            names = names_of(rm, one, other);
            rmc_uvm(rm, uvm_file(), UVM_DISABLE_PEER_ACCESS, &names);
            rmc_free(rm, pairs[one][other]);
            pairs[one][other] = 0;
        }
}

/* Bits of cards; one on which the process has no context reaches nothing yet. */
static uint32_t wanted(const struct rmc *rm, const struct range *range)
{
    uint32_t cards = range->reach, on = 0;

    if (!range->handle || !range->card)
        return 0;
    if (range->pool)
        cards |= range->pool->reach;
    else if (range->kind == RANGE_DEVICE)
        cards |= access_cards(rm, range->context);
    cards &= ~(1u << number_of(rm, range->card));
    for (uint32_t i = 0; i < rm->card_count; i++)
        if (cards & 1u << i && context_on(&rm->cards[i]))
            on |= 1u << i;
    return on;
}

static uint32_t make_range(const struct rmc *rm, struct range *range)
{
    struct {
        struct uvm_range range;
        uint32_t status, pad;
    } made = {.range = {range->base, pages_of(range)}};
    uint32_t status;

    if (range->external)
        return NV_OK;
    status = rmc_uvm(rm, uvm_file(), UVM_CREATE_EXTERNAL_RANGE, &made);
    range->external = !status;
    return status;
}

static uint32_t map_on(const struct rmc *rm, struct range *range, uint32_t card)
{
    static uint64_t params[2048];
    uint32_t bytes = uvm_size_of(&rm->table, UVM_MAP_EXTERNAL_ALLOCATION).bytes, status;
    struct uvm_map_external_begin begin = {{range->base, pages_of(range)}, range->from};
    struct uvm_map_external_gpu gpu = {.attributes = {0}};
    struct uvm_map_external_end end = {
        .gpus = 1, .ctl_fd = rm->ctl_fd, .client = rm->client, .memory = range->handle};

    status = make_pair(rm, number_of(rm, range->card), card);
    if (!status)
        status = make_range(rm, range);
    if (status)
        return status;
    rmc_uuid(&rm->cards[card], gpu.gpu);
    memset(params, 0, sizeof params);
    memcpy(params, &begin, sizeof begin);
    memcpy((uint8_t *)params + sizeof begin, &gpu, sizeof gpu);
    memcpy((uint8_t *)params + bytes - sizeof end, &end, sizeof end);
    status = rmc_uvm(rm, uvm_file(), UVM_MAP_EXTERNAL_ALLOCATION, params);
    if (!status)
        range->reached |= 1u << card;
    return status;
}

static void unmap_from(const struct rmc *rm, struct range *range, uint32_t card)
{
    struct uvm_unmap_external gone = {.range = {range->base, pages_of(range)}};

    rmc_uuid(&rm->cards[card], gone.gpu);
    rmc_uvm(rm, uvm_file(), UVM_UNMAP_EXTERNAL, &gone);
    range->reached &= ~(1u << card);
}

CUresult reach(const struct rmc *rm, struct range *range)
{
    uint32_t cards = wanted(rm, range), status = cards & ~range->reached ? uvm_join(rm) : NV_OK;

    for (uint32_t i = 0; i < rm->card_count && !status; i++)
        if (cards & ~range->reached & 1u << i)
            status = map_on(rm, range, i);
        else if (range->reached & ~cards & 1u << i)
            unmap_from(rm, range, i);
    if (!range->reached)
        reach_end(rm, range);
    return from_rm(status);
}

CUresult reach_all(const struct rmc *rm)
{
    CUresult result = CUDA_SUCCESS;
    struct range *range;

    for (size_t i = 0; (range = range_number(i)) && !result; i++)
        result = reach(rm, range);
    end_pairs(rm);
    return result;
}

/* Of drivers to which the length is said and of those to which it is not, the base comes first. */
void reach_end(const struct rmc *rm, struct range *range)
{
    uint64_t params[4] = {range->base, pages_of(range)};

    if (range->external)
        rmc_uvm(rm, uvm_file(), UVM_FREE, params);
    range->external = false;
    range->reached = 0;
}

void reach_leave(const struct rmc *rm, const struct rmc_card *card)
{
    struct range *range;

    for (size_t i = 0; (range = range_number(i)); i++)
        range->reached &= ~(1u << number_of(rm, card));
}

void reach_forget(void)
{
    struct range *range;

    memset(pairs, 0, sizeof pairs);
    for (size_t i = 0; (range = range_number(i)); i++) {
        range->external = false;
        range->reached = 0;
    }
}
