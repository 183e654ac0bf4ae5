#include "continued.h"
#include "base/clock.h"
#include "native_sched/nvidia/channels/groups.h"
#include "private.h"
#include <errno.h>

enum { NAMES_MAX = 4 };
/* A program that has made a client makes its next call within microseconds, or ends. */
enum { LOOKS = 20, LOOK_US = 100 };

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
    for (uint32_t nth = 0; !a->root && nth < NAMES_MAX; nth++) {
        a->root = same_client_again(c, nth);
        if (c->m->ops->client_exists(c->m->driver, a->root) > 0)
            a->root = 0;
    }
    a->handle = a->root;
    return a->root;
}

/* What can be refused is refused here: a call that the driver refuses has not made its object. */
static uint32_t may_begin(struct call *c, const struct creation *a, const struct process_id *who)
{
    static _Thread_local struct processes processes;
    const struct objects *o = &c->tenant->objects;

    processes_of(c->tenant, &processes);
    processes_note(&processes, who->tgid);
    if (processes.overflow || !files_open(c->m->files, &c->file))
        return NV_ERR_NO_MEMORY;
    WITH_TENANT(c->tenant);
    if (o->live == OBJECTS_MAX)
        return NV_ERR_NO_MEMORY;
    return objects_find(o, a->root, a->handle) ? NV_ERR_INSERT_DUPLICATE_NAME : NV_OK;
}

static uint32_t begin(struct call *c, struct creation *a)
{
    const struct driver_ops *ops = c->m->ops;
    struct unconfirmed *u = c->tenant->unconfirmed;
    struct process_id who;
    uint32_t status;

    if (caller_process_id(c->caller, &who) < 0)
        return NV_ERR_NO_MEMORY;
    if ((status = may_begin(c, a, &who)))
        return status;
    if (ops->hold_file && ops->hold_file(c->m->driver, &c->file) < 0)
        return NV_ERR_NO_MEMORY;
    *u = (struct unconfirmed){
        .client = a->root,
        .parent = a->parent,
        .handle = a->handle,
        .class_id = a->class_id,
        .who = who,
        .by = thread_call_of((pid_t)c->caller->req->pid, c->cmd, c->outer_at),
        .notification = c->caller->req->id,
        .since_ns = monotonic_ns(),
        .unsent = true,
    };
    __atomic_store_n(&u->file, c->file.id, __ATOMIC_RELEASE);
    return NV_OK;
}

static bool has_client(const struct call *c, uint32_t client)
{
    WITH_TENANT(c->tenant);

    return call_find(c, client, client);
}

/* A program that chooses a name itself is answered as RM would answer it. */
static bool is_taken(const struct call *c, const struct creation *a)
{
    return c->m->ops->client_exists(c->m->driver, a->root) > 0;
}

/* NV_OK: the client is to be made, and has its name. *made: it is there already, from before a restart. */
static uint32_t prepare_client(struct call *c, struct creation *a, bool *made)
{
    bool ours = !a->root || is_own_client(a->root);

    if (!name_client(c, a))
        return NV_ERR_NO_MEMORY;
    *made = ours && has_client(c, a->root);
    return *made || !is_taken(c, a) ? NV_OK : NV_ERR_INSERT_DUPLICATE_NAME;
}

struct answer continued_make(struct call *c, struct creation *a)
{
    struct tenant *t = c->tenant;
    struct answer made;
    uint32_t status;
    bool is_made = false;
    int e;

    assert_held(&t->calls);
    if ((e = confirm_wait(c)))
        return failed(e < 0 ? e : -EPERM);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    /* This very call, which the previous mgpud began. Its caller waits, so no kernel has let it go on. */
    confirm_forget(c->m, t);
    if (rm_kind_of(a->class_id) == RM_KIND_ROOT && ((status = prepare_client(c, a, &is_made)) || is_made))
        return answered(status);
    if ((status = begin(c, a)))
        return answered(status);
    /* What another class adds to a group of the tenant's is no channel that we could name. */
    atomic_store_explicit(&t->audit_due, true, memory_order_release);
    if ((e = say_names(c, a)) < 0 || (e = groups_unconfirmed(t->groups, true)) < 0) {
        confirm_forget(c->m, t);
        return failed(e);
    }
    if (!c->m->ops->as_caller)
        return continued();
    made = continued_as_caller(c);
    t->unconfirmed->unsent = false;
    if (made.kind == FAIL || made.rm_status)
        confirm_forget(c->m, t);
    else
        (void)confirm_look(c->m, t);
    return made;
}

/* Whether there is more to look for. */
static bool look(struct call *c, bool accepted)
{
    struct tenant *t = c->tenant;
    WITH_CALLS_OF(t);

    if (!t->unconfirmed->file || t->unconfirmed->notification != c->caller->req->id)
        return false;
    if (!accepted)
        confirm_forget(c->m, t);
    return accepted && confirm_look(c->m, t) == 0;
}

void continued_send(struct call *c)
{
    struct tenant *t = c->tenant;
    WITH_CALLS_OF(t);

    if (t->unconfirmed->file && t->unconfirmed->notification == c->caller->req->id)
        t->unconfirmed->unsent = false;
}

void continued_sent(struct call *c, bool accepted)
{
    const struct timespec pause = {.tv_nsec = LOOK_US * 1000};

    for (int looks = 0; looks < LOOKS && look(c, accepted); looks++)
        nanosleep(&pause, NULL);
}

void continued_recover(const struct mediator *m, struct tenant *t)
{
    struct open_file file;

    assert_held(&t->calls);
    atomic_store(&t->audit_due, true);
    if (m->ops->hold_file && files_by_id(m->files, t->unconfirmed->file, &file))
        (void)m->ops->hold_file(m->driver, &file);
    /* Its caller may have been interrupted meanwhile: nothing would ever end it, and the tenant's other calls
     * would wait for it. */
    if (t->unconfirmed->file && t->unconfirmed->unsent && confirm_look(m, t) != 1)
        confirm_forget(m, t);
}
