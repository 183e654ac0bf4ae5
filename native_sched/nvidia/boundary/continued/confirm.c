/* Asks the driver what a continued call has made. */
#include "base/clock.h"
#include "native_sched/nvidia/channels/groups.h"
#include "private.h"
#include <errno.h>

enum { UNCONFIRMED_S = 10, ANSWER_MAX = 512, LOOK_MS = 1, ONCE_MORE_MS = 20 };

static bool is_root(const struct unconfirmed *u)
{
    return rm_kind_of(u->class_id) == RM_KIND_ROOT;
}

/* A control that shows nothing and that objects of the class answer, and on that file only those of the
 * file's clients. RM looks for no object before it has compared the size, which is the class's own
 * (_rmapiRmControl()). */
static uint32_t question(const struct unconfirmed *u)
{
    switch (rm_kind_of(u->class_id)) {
    case RM_KIND_ROOT:
        return NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS;
    case RM_KIND_GPU_INSTANCE:
        return NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS;
    default:
        return NVC638_CTRL_CMD_GET_UUID;
    }
}

/* 0 or 1, or a negative errno. */
static int is_there(const struct mediator *m, const struct open_file *file, const struct unconfirmed *u)
{
    _Alignas(16) uint8_t answer[ANSWER_MAX] = {0};
    const struct rm_target of = {.file = *file, .client = u->client, .rm = &m->rm};
    int bytes = rm_control_params(&m->rm, question(u)), e;

    if (bytes <= 0 || bytes > ANSWER_MAX)
        return -ENOTSUP;
    e = control_of_client(m->ops, m->driver, &of, is_root(u) ? u->client : u->handle, question(u), answer,
                          (uint32_t)bytes);
    if (e == 0)
        return 1;
    return e == -ESRCH || e == -ENOENT || rm_refused(e) ? 0 : e;
}

/* False for one that finds no room. */
static bool account_add(struct tenant *t, const struct unconfirmed *u)
{
    struct objects *o = &t->objects;
    WITH_TENANT(t);
    uint32_t parent = is_root(u) ? 0 : objects_find(o, u->client, u->parent);
    int64_t slot;

    /* The previous mgpud added it, and died before it forgot the call: may_begin() gives no name twice. */
    if (objects_find(o, u->client, u->handle))
        return true;
    if (!is_root(u) && !parent)
        return false;
    slot = objects_add(o, parent, u->client, u->handle, is_root(u) ? NV01_ROOT_CLIENT : u->class_id);
    if (slot < 0)
        return false;
    if (is_root(u)) {
        o->slot[slot].file = u->file;
        o->slot[slot].owner = u->who;
    }
    objects_commit(o, (uint32_t)slot);
    return true;
}

void confirm_end(const struct mediator *m, struct tenant *t)
{
    const struct open_file file = {.id = t->unconfirmed->file};

    assert_held(&t->calls);
    __atomic_store_n(&t->unconfirmed->file, 0, __ATOMIC_RELEASE);
    if (file.id && m->ops->unpin)
        m->ops->unpin(m->driver, &file);
}

void confirm_forget(const struct mediator *m, struct tenant *t)
{
    if (!t->unconfirmed->file)
        return;
    confirm_end(m, t);
    (void)groups_unconfirmed(t->groups, false);
}

static bool has_any_client(struct tenant *t)
{
    const struct objects *o = &t->objects;
    WITH_TENANT(t);
    uint32_t i = o->slot[0].first_child;

    while (i && !o->slot[i].client)
        i = o->slot[i].next_sibling;
    return i;
}

int confirm_look(const struct mediator *m, struct tenant *t)
{
    const struct unconfirmed *u = t->unconfirmed;
    struct open_file file;
    int e;

    assert_held(&t->calls);
    if (!files_by_id(m->files, u->file, &file) || file.tenant != t)
        return -ENOENT;
    if ((e = is_there(m, &file, u)) != 1)
        return e;
    if (!account_add(t, u))
        return 0;
    confirm_forget(m, t);
    return 1;
}

int confirm(const struct mediator *m, struct tenant *t, bool over)
{
    const struct timespec pause = {.tv_nsec = ONCE_MORE_MS * 1000000};
    const struct unconfirmed *u = t->unconfirmed;
    bool ends = monotonic_ns() - u->since_ns > UNCONFIRMED_S * 1000000000ull;
    int e;

    assert_held(&t->calls);
    if (!u->file)
        return 0;
    over |= thread_call_is_over(&u->by);         /* before the driver is asked */
    if ((e = confirm_look(m, t)) == 0 && over) { /* the answer ends a container: it is asked for twice */
        nanosleep(&pause, NULL);
        e = confirm_look(m, t);
    }
    if (e == 1)
        return 0;
    /* The file was closed while no mgpud kept it open. What was made on it is gone; by another client's file
     * it may have been something else. */
    if (e == -ENOENT && !has_any_client(t)) {
        confirm_forget(m, t);
        return 0;
    }
    if (e == -ENOENT || ends || (over && e == 0))
        return 1;
    /* Unlocated, or closed and not known to be so yet: it cannot be asked for now. */
    return e == -EAGAIN || e == -EBADF || e == -EBUSY ? 0 : e;
}

int confirm_wait(struct call *c)
{
    struct tenant *t = c->tenant;
    const struct unconfirmed *u = t->unconfirmed;
    struct timespec until;
    int e = 0;

    assert_held(&t->calls);
    /* One of the same notification is this very call, which the previous mgpud began. */
    while (u->file && u->notification != c->caller->req->id) {
        if ((e = confirm(c->m, t, u->by.tid == (pid_t)c->caller->req->pid)) || !u->file)
            return e;
        if ((c->over && atomic_load(c->over)) || !caller_waits(c->caller))
            return -EINTR;
        until = monotonic_after_ms(LOOK_MS);
        pthread_cond_timedwait(&t->file_closed, &t->calls, &until);
    }
    return 0;
}
