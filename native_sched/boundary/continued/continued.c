#include "continued.h"
#include "base/clock.h"
#include "native_sched/channels/groups.h"
#include "private.h"
#include <errno.h>

enum { SETTLE_MS = 2, SETTLE_LOOKS = 20 };

static bool has_any_client(const struct objects *o)
{
    uint32_t i = o->slot[0].first_child;

    while (i && !o->slot[i].client)
        i = o->slot[i].next_sibling;
    return i;
}

void continued_forget(const struct mediator *m, struct tenant *t, uint64_t file)
{
    assert_held(&t->calls);
    assert_held(&t->lock);
    for_each_call(u, t->continued)
    {
        if (u->file != file)
            continue;
        u->file = 0;
        if (has_any_client(&t->objects))
            audit_violation(m, t, 0, UNKNOWN_BYTES);
    }
}

void continued_settle(const struct mediator *m, struct tenant *t)
{
    const struct timespec pause = {.tv_nsec = SETTLE_MS * 1000000 / SETTLE_LOOKS};
    bool settled = audit_passed(t);

    for (int look = 0; look < SETTLE_LOOKS && !settled; look++) {
        {
            WITH_CALLS_OF(t);
            settled = confirm(m, t) < 0 || !confirm_count(t->continued);
        }
        if (!settled)
            nanosleep(&pause, NULL);
    }
}

/* Room for the call, or where it is already. */
static struct unconfirmed *entry_for(struct continued *l, const struct call *c)
{
    struct unconfirmed *found = NULL;

    for_each_call(u, l)
    {
        if (u->file && u->notification == c->caller->req->id)
            return u;
        found = u->file ? found : u;
    }
    return found;
}

void continued_wait_for_room(struct call *c)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int ms = 0; ms < ROOM_WAIT_MS; ms++) {
        {
            WITH_CALLS_OF(c->tenant);
            if (confirm(c->m, c->tenant) < 0 || entry_for(c->tenant->continued, c))
                return;
        }
        if (!caller_waits(c->caller))
            return;
        nanosleep(&pause, NULL);
    }
}

/* The caller's own struct is what the driver will read: a name that we gave has to be in it. */
static int say_names(struct call *c, const struct creation *a)
{
    struct rm_alloc_short *o = (void *)c->outer;

    if (o->root == a->root && o->handle == a->handle)
        return 0;
    o->root = a->root;
    o->handle = a->handle;
    return caller_write_both(c->caller, c->outer_at, c->outer, c->outer_bytes, 0, NULL, 0);
}

struct answer continued_as_caller(struct call *c)
{
    struct driver_call d = call_for_driver(c, &c->file);
    int e;

    d.tgid = caller_tgid(c->caller);
    c->passed = true;
    e = c->m->ops->as_caller(c->m->driver, c->caller, c->outer_at, &d);
    c->params_at = d.params_at;
    c->params_bytes = d.params_bytes;
    c->params_out = e == 0 && d.params_bytes;
    return driver_answer(e, call_status(c));
}

/* RM takes the name of a client from where the client of other objects is (serverAllocClient()). */
static bool name_client(struct call *c, struct creation *a)
{
    for (uint32_t nth = 0; !a->root && nth < UNCONFIRMED_MAX; nth++) {
        a->root = same_client_again(c, nth);
        if (c->m->ops->client_exists && c->m->ops->client_exists(c->m->driver, a->root) > 0)
            a->root = 0;
    }
    a->handle = a->root;
    return a->root;
}

static uint32_t begin(struct call *c, struct creation *a, struct unconfirmed *u)
{
    static _Thread_local struct processes processes;
    struct process_id who;

    if (!u || caller_process_id(c->caller, &who) < 0)
        return NV_ERR_NO_MEMORY;
    processes_of(c->tenant, &processes);
    processes_note(&processes, who.tgid);
    if (processes.overflow || !files_open(c->m->files, &c->file))
        return NV_ERR_NO_MEMORY;
    WITH_TENANT(c->tenant);
    if (objects_find(&c->tenant->objects, a->root, a->handle))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    *u = (struct unconfirmed){
        .client = a->root,
        .parent = a->parent,
        .handle = a->handle,
        .class_id = a->class_id,
        .who = who,
        .by = thread_call_of((pid_t)c->caller->req->pid, c->cmd, c->outer_at),
        .notification = c->caller->req->id,
        .since_ns = monotonic_ns(),
    };
    __atomic_store_n(&u->file, c->file.id, __ATOMIC_RELEASE);
    return NV_OK;
}

static bool has_client(const struct call *c, uint32_t client)
{
    WITH_TENANT(c->tenant);

    return call_find(c, client, client);
}

/* The driver has made it on this file, and the mgpud that named it died before it was in the account. */
static bool take_made(struct call *c, const struct creation *a)
{
    struct unconfirmed made = {.client = a->root, .handle = a->handle, .class_id = a->class_id};

    if (caller_process_id(c->caller, &made.who) < 0)
        return false;
    made.file = c->file.id;
    for_each_call(u, c->tenant->continued)
    {
        if (u->file == made.file && u->client == a->root)
            u->file = 0;
    }
    return confirm_made(c->m, c->tenant, &c->file, &made);
}

struct answer continued_make(struct call *c, struct creation *a)
{
    struct tenant *t = c->tenant;
    struct unconfirmed *u = entry_for(t->continued, c);
    struct answer made;
    uint32_t status;
    int e;

    assert_held(&t->calls);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    if (rm_kind_of(a->class_id) == RM_KIND_ROOT) {
        bool ours = !a->root || is_own_client(a->root);

        if (!name_client(c, a))
            return answered(NV_ERR_NO_MEMORY);
        if (ours && (has_client(c, a->root) || take_made(c, a))) /* made anew after a restart */
            return answered(NV_OK);
    }
    if ((status = begin(c, a, u)))
        return answered(status);
    /* What another class adds to a group of the tenant's is no channel that we could name. */
    atomic_store_explicit(&t->audit_due, true, memory_order_release);
    if ((e = say_names(c, a)) < 0 || (e = groups_unconfirmed(t->groups, true)) < 0) {
        u->file = 0;
        return failed(e);
    }
    if (!c->m->ops->as_caller)
        return continued();
    made = continued_as_caller(c);
    if (made.kind == FAIL || made.rm_status)
        u->file = 0;
    return made;
}

void continued_not_sent(struct call *c)
{
    WITH_CALLS_OF(c->tenant);

    for_each_call(u, c->tenant->continued)
    {
        if (u->file && u->notification == c->caller->req->id)
            u->file = 0;
    }
}
