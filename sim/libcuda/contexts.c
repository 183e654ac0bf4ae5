#include "engines.h"
#include <stdlib.h>

static struct CUctx_st *contexts;

void contexts_add(CUcontext context)
{
    static unsigned long long last_id;

    context->id = ++last_id;
    context->next = contexts;
    contexts = context;
}

void contexts_remove(CUcontext context)
{
    struct CUctx_st **at = &contexts;

    while (*at != context)
        at = &(*at)->next;
    *at = context->next;
}

bool context_live(CUcontext context)
{
    for (const struct CUctx_st *live = contexts; live; live = live->next)
        if (live == context)
            return true;
    return false;
}

static void context_free(struct CUctx_st *context)
{
    engines_free(context->engines);
    free(context);
}

CUcontext context_on(const struct rmc_card *card)
{
    CUcontext live = contexts;

    while (live && live->device->card != card)
        live = live->next;
    return live;
}

bool contexts_drained(void)
{
    for (const struct CUctx_st *live = contexts; live; live = live->next)
        if (!engines_drained(live->engines))
            return false;
    return true;
}

void contexts_leave(void)
{
    for (const struct CUctx_st *live = contexts; live; live = live->next)
        engines_leave(live->engines);
}

CUresult contexts_return(void)
{
    uint32_t status = NV_OK;

    for (const struct CUctx_st *live = contexts; live && !status; live = live->next)
        status = engines_return(live->engines);
    return from_rm(status);
}

/* The parent's RM client went with the session; only our own notes are left to drop. */
void contexts_forget(void)
{
    while (contexts) {
        struct CUctx_st *context = contexts;

        contexts = context->next;
        context_free(context);
    }
}

CUcontext context_hold(CUcontext context)
{
    __atomic_fetch_add(&context->refs, 1, __ATOMIC_RELAXED);
    return context;
}

void context_release(CUcontext context)
{
    if (!__atomic_sub_fetch(&context->refs, 1, __ATOMIC_ACQ_REL))
        context_free(context);
}
