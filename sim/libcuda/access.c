/* Which context reaches the memory of which. */
#include "access.h"
#include <stdlib.h>

struct access {
    struct access *next;
    CUcontext from, to; /* the one reaches all that the other makes */
};
static struct access *accesses;

static struct access **access_at(const struct CUctx_st *from, const struct CUctx_st *to)
{
    struct access **at = &accesses;

    while (*at && ((*at)->from != from || (*at)->to != to))
        at = &(*at)->next;
    return at;
}

static void take_out(struct access **at)
{
    struct access *gone = *at;

    *at = gone->next;
    free(gone);
}

bool access_add(CUcontext from, CUcontext to)
{
    struct access *access = malloc(sizeof *access);

    if (!access)
        return false;
    *access = (struct access){accesses, from, to};
    accesses = access;
    return true;
}

bool access_exists(const struct CUctx_st *from, const struct CUctx_st *to)
{
    return *access_at(from, to);
}

void access_remove(const struct CUctx_st *from, const struct CUctx_st *to)
{
    take_out(access_at(from, to));
}

uint32_t access_cards(const struct rmc *rm, const struct CUctx_st *to)
{
    uint32_t cards = 0;

    for (const struct access *access = accesses; access; access = access->next)
        if (access->to == to)
            cards |= 1u << (access->from->device->card - rm->cards);
    return cards;
}

bool access_between(const struct rmc_card *one, const struct rmc_card *other)
{
    for (const struct access *access = accesses; access; access = access->next) {
        const struct rmc_card *from = access->from->device->card, *to = access->to->device->card;

        if ((from == one && to == other) || (from == other && to == one))
            return true;
    }
    return false;
}

void access_end_context(const struct CUctx_st *context)
{
    for (struct access **at = &accesses; *at;)
        if ((*at)->from == context || (*at)->to == context)
            take_out(at);
        else
            at = &(*at)->next;
}

void access_forget(void)
{
    while (accesses)
        take_out(&accesses);
}
