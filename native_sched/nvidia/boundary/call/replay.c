#include "replay.h"
#include "inflight.h"
#include <string.h>

static struct replay_entry *entry_of(struct replay *r, uint32_t tid)
{
    for (int i = 0; i < REPLAY_SLOTS; i++)
        if (r->entry[i].tid == tid)
            return &r->entry[i];
    return NULL;
}

static bool goes_before(const struct replay_entry *a, const struct replay_entry *b)
{
    return a->accepted != b->accepted ? a->accepted : a->number < b->number;
}

/* The thread's own, an empty one, or the one that is least likely to be asked for. */
static struct replay_entry *room_for(struct replay *r, uint32_t tid)
{
    struct replay_entry *room = entry_of(r, tid);

    if (!room)
        room = entry_of(r, 0);
    if (room)
        return room;
    room = &r->entry[0];
    for (int i = 1; i < REPLAY_SLOTS; i++)
        if (goes_before(&r->entry[i], room))
            room = &r->entry[i];
    return room;
}

/* The object that a call makes or frees. */
struct object_name {
    uint32_t root, handle;
};

static struct object_name name_in(uint32_t cmd, const uint8_t *outer)
{
    const struct rm_free *f = (const void *)
        outer; /* ALLOC in all its forms and DUP have both at the same places */
    const struct rm_heap *h = (const void *)outer;

    if (RM_NR(cmd) == NV_ESC_RM_VID_HEAP_CONTROL)
        return (struct object_name){h->root, h->any.handle};
    return (struct object_name){f->root, f->handle};
}

static bool frees(uint32_t cmd, const uint8_t *outer)
{
    return RM_NR(cmd) == NV_ESC_RM_FREE ||
           (RM_NR(cmd) == NV_ESC_RM_VID_HEAP_CONTROL &&
            ((const struct rm_heap *)(const void *)outer)->function == RM_HEAP_FREE);
}

/* Another thread's accepted answers hold no longer where this call may have made them untrue. */
static void forget_undone(struct replay *r, const struct call *c)
{
    struct object_name now = name_in(c->cmd, c->outer);

    for (int i = 0; i < REPLAY_SLOTS; i++) {
        struct replay_entry *e = &r->entry[i];
        struct object_name then = name_in(e->cmd, e->outer);

        if (e->accepted && then.root == now.root && (frees(c->cmd, c->outer) || then.handle == now.handle))
            e->tid = 0;
    }
}

/* The key by which a repeated call is recognised. The entry is empty until publish(). */
static struct replay_entry *entry_for(struct replay *r, const struct seccomp_notif *req, const struct call *c,
                                      const uint8_t *before)
{
    struct replay_entry *e = room_for(r, req->pid);

    e->tid = 0;
    *e = (struct replay_entry){
        .cmd = c->cmd,
        .number = ++r->kept,
        .fd = req->data.args[0],
        .at = c->outer_at,
        .outer_bytes = c->outer_bytes,
        .file = c->file.id,
    };
    memcpy(e->before, before, c->outer_bytes);
    return e;
}

static void publish(struct replay_entry *e, const struct seccomp_notif *req)
{
    __atomic_store_n(&e->tid, req->pid, __ATOMIC_RELEASE);
}

void replay_keep(struct replay *r, const struct seccomp_notif *req, const struct call *c,
                 const uint8_t *before, bool written, bool accepted)
{
    struct replay_entry *e;

    if (c->outer_bytes > KEPT_OUTER_MAX || c->params_bytes > KEPT_PARAMS_MAX)
        return;
    /* A refusal changed nothing: asked again, it is the driver's to repeat. */
    if (accepted && call_status(c) != NV_OK) {
        if ((e = entry_of(r, req->pid)))
            e->tid = 0;
        return;
    }
    forget_undone(r, c);
    e = entry_for(r, req, c, before);
    e->params_at = c->params_at;
    e->params_bytes = c->params_out ? c->params_bytes : 0;
    e->params_check = c->params_check;
    e->params_check_after = c->params_check_after;
    e->written = written;
    e->accepted = accepted;
    memcpy(e->outer, c->outer, c->outer_bytes);
    memcpy(e->params, c->params, e->params_bytes);
    publish(e, req);
}

void replay_keep_begun(struct replay *r, const struct seccomp_notif *req, const struct call *c,
                       const uint8_t *before, uint64_t begun)
{
    struct replay_entry *e = entry_for(r, req, c, before);

    e->begun = begun;
    publish(e, req);
}

/* A control is what its parameters say. */
static bool says_the_same(const struct replay_entry *e, struct call *c)
{
    const struct rm_control *ctl = (const void *)c->outer;
    uint32_t says;

    if (RM_NR(c->cmd) != NV_ESC_RM_CONTROL)
        return true;
    if (inflight_params(c, ctl->params, ctl->params_size) < 0)
        return false;
    says = call_params_check(c);
    return says == e->params_check || says == e->params_check_after;
}

bool replay_find(struct replay *r, const struct seccomp_notif *req, struct call *c)
{
    struct replay_entry *e = entry_of(r, req->pid);
    bool same = e && e->cmd == c->cmd && e->fd == req->data.args[0] && e->file == c->file.id &&
                e->at == c->outer_at && e->outer_bytes == c->outer_bytes;

    /* The kernel's repeat finds what was written; a program's own repeat passes what it passed before. */
    if (same && e->accepted)
        same = !memcmp(e->outer, c->outer, c->outer_bytes);
    else if (same)
        same = !memcmp(e->before, c->outer, c->outer_bytes) ||
               (e->written && !memcmp(e->outer, c->outer, c->outer_bytes));
    /* Kept until the call has been answered: this mgpud may end in the middle of it, too. */
    if (same && e->begun) {
        c->again = e->begun;
        return false;
    }
    if (!same || !says_the_same(e, c)) {
        if (e)
            e->tid = 0; /* a thread waits in one call at a time: another one ends the story of the first */
        return false;
    }
    memcpy(c->outer, e->outer, e->outer_bytes);
    memcpy(c->params, e->params, e->params_bytes);
    c->params_at = e->params_at;
    c->params_bytes = e->params_bytes;
    c->params_out = e->params_bytes;
    c->params_check = e->params_check;
    c->params_check_after = e->params_check_after;
    return true;
}
