#include "inflight.h"
#include <errno.h>
#include <string.h>

/* What follows in the program is stored after what came before: a kill knows no other order. */
void inflight_enter(struct inflight *k, enum inflight_stage stage)
{
    __atomic_store_n(&k->stage, (uint32_t)stage, __ATOMIC_RELEASE);
}

uint32_t inflight_check(const struct inflight *k)
{
    return store_check(&k->was, sizeof(k->was));
}

struct seccomp_notif *inflight_next(struct inflight *k)
{
    inflight_enter(k, INFLIGHT_NONE);
    memset(&k->req, 0, sizeof(k->req));
    return &k->req;
}

void inflight_read(struct call *c, const uint8_t *outer)
{
    struct inflight *k = c->inflight;

    if (!k || c->outer_bytes > sizeof(k->before))
        return;
    memcpy(k->before, outer, c->outer_bytes);
    k->file = c->file.id;
    k->params_bytes = 0;
    k->begun = c->again;
    inflight_enter(k, INFLIGHT_READ);
}

static void keep_params(struct call *c)
{
    struct inflight *k = c->inflight;

    if (!k || k->stage != INFLIGHT_READ || c->params_bytes > sizeof(k->params_before))
        return;
    memcpy(k->params_before, c->params, c->params_bytes);
    k->params_at = c->params_at;
    __atomic_store_n(&k->params_bytes, c->params_bytes, __ATOMIC_RELEASE);
}

int inflight_params(struct call *c, uint64_t at, uint32_t bytes)
{
    int e;

    if (bytes > PARAMS_MAX)
        return -EINVAL;
    if (!at || !bytes) {
        c->params_bytes = 0;
        return 0;
    }
    if (at != c->guessed_at || bytes > c->guessed_bytes) {
        if ((e = caller_read(c->caller, at, c->params, bytes)) < 0)
            return e;
        caller_learn_params(c->caller, c->outer_at, at, bytes);
    }
    c->params_at = at;
    c->params_bytes = bytes;
    keep_params(c);
    return 0;
}

void inflight_intend(struct call *c, enum intent what, const struct open_file *file, uint32_t client,
                     uint32_t parent, uint32_t handle)
{
    struct inflight *k = c->inflight;

    if (!k || k->stage != INFLIGHT_READ)
        return;
    k->was = (struct inflight_intent){
        .what = what, .client = client, .parent = parent, .handle = handle, .file = file->id};
    k->check = inflight_check(k);
    inflight_enter(k, INFLIGHT_INTENDED);
}

void inflight_commit(struct call *c)
{
    struct inflight *k = c->inflight;

    if (!k || (k->stage != INFLIGHT_INTENDED && k->stage != INFLIGHT_READ))
        return;
    __atomic_store_n(&k->begun, c->again ? c->again : k->req.id, __ATOMIC_RELEASE);
    inflight_enter(k, INFLIGHT_READ);
}

void inflight_done(struct call *c)
{
    struct inflight *k = c->inflight;
    uint32_t out = c->params_out ? c->params_bytes : 0;

    if (!k || k->stage == INFLIGHT_NONE || out > sizeof(k->params))
        return;
    memcpy(k->outer, c->outer, c->outer_bytes);
    memcpy(k->params, c->params, out);
    k->params_at = c->params_at;
    k->params_out_bytes = out;
    k->params_check = c->params_check;
    k->params_check_after = c->params_check_after;
    k->written = false;
    inflight_enter(k, INFLIGHT_DONE);
}

bool inflight_restore(const struct inflight *k, struct call *c)
{
    if (k->stage != INFLIGHT_READ || k->file != c->file.id || c->outer_bytes > sizeof(k->before) ||
        k->params_bytes > sizeof(k->params_before))
        return false;
    c->again = k->begun;
    memcpy(c->outer, k->before, c->outer_bytes);
    memcpy(c->params, k->params_before, k->params_bytes);
    c->guessed_at = k->params_at;
    c->guessed_bytes = k->params_bytes;
    return true;
}

void inflight_result(const struct inflight *k, struct call *c)
{
    memcpy(c->outer, k->outer, sizeof(k->outer));
    memcpy(c->params, k->params, sizeof(k->params));
    c->params_at = k->params_at;
    c->params_bytes = k->params_out_bytes <= sizeof(k->params) ? k->params_out_bytes : 0;
    c->params_out = c->params_bytes;
    c->params_check = k->params_check;
    c->params_check_after = k->params_check_after;
    c->file.id = k->file;
}
