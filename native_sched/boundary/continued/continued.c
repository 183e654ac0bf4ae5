#define _GNU_SOURCE
#include "continued.h"
#include "base/clock.h"
#include "native_sched/boundary/objects/drop.h"
#include "native_sched/boundary/objects/retained.h"
#include "native_sched/channels/groups.h"
#include <errno.h>
#include <sys/eventfd.h>

enum { PROCESSES_MAX = 1024, UNCONFIRMED_S = 10, ROOM_WAIT_MS = 1000, ANSWER_MAX = 512 };
/* What `unaccounted_bytes` says of a call that has made no one knows what. */
enum { SOMETHING = 1 };

#define for_each_call(u, l) for (struct unconfirmed *u = (l)->call; u < (l)->call + UNCONFIRMED_MAX; u++)

static uint32_t unconfirmed(struct continued *l)
{
    uint32_t n = 0;

    for_each_call(u, l)
    {
        n += u->file != 0;
    }
    return n;
}

void continued_forget(struct tenant *t, uint64_t file)
{
    assert_held(&t->calls);
    for_each_call(u, t->continued)
    {
        if (u->file == file)
            u->file = 0;
    }
}

struct processes {
    pid_t tgid[PROCESSES_MAX];
    uint32_t count;
    bool overflow;
};

static void note(struct processes *p, pid_t tgid)
{
    for (uint32_t i = p->count; i-- > 0;)
        if (p->tgid[i] == tgid)
            return;
    if (p->count == PROCESSES_MAX)
        p->overflow = true;
    else
        p->tgid[p->count++] = tgid;
}

/* Every process to which the driver may count memory of the tenant. */
static void processes_of(struct tenant *t, struct processes *out)
{
    const struct objects *o = &t->objects;
    WITH_TENANT(t);

    out->count = 0;
    out->overflow = false;
    for (uint32_t i = o->slot[0].first_child; i; i = o->slot[i].next_sibling)
        if (o->slot[i].client)
            note(out, o->slot[i].owner.tgid);
    for_each_call(u, t->continued)
    {
        if (u->file)
            note(out, u->who.tgid);
    }
}

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

    if ((!is_root(u) && !parent) || objects_find(o, u->client, u->handle))
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

static int violation(const struct mediator *m, struct tenant *t, uint32_t card, uint64_t bytes)
{
    stats_audit_mismatch(&t->stats, card);
    atomic_store(&t->unaccounted_bytes, bytes);
    eventfd_write(m->events, 1);
    return -EPERM;
}

/* Takes into the account what has been made since. */
static int confirm(const struct mediator *m, struct tenant *t)
{
    bool had = unconfirmed(t->continued), late = false;
    struct open_file file;
    int e;

    for_each_call(u, t->continued)
    {
        bool ends = u->file && monotonic_ns() - u->since_ns > UNCONFIRMED_S * 1000000000ull;

        if (!u->file)
            continue;
        if (!files_by_id(m->files, u->file, &file) || file.tenant != t) {
            u->file = 0;
        } else if ((e = is_there(m, &file, u)) == 1 && account_add(t, u)) {
            u->file = 0;
        } else {
            if (e < 0 && e != -EAGAIN) /* unlocated for now: it cannot be asked */
                return e;
            late |= ends && e >= 0;
        }
    }
    if (late)
        return violation(m, t, 0, SOMETHING);
    return had && !unconfirmed(t->continued) ? groups_unconfirmed(t->groups, false) : 0;
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
        if (c->m->ops->client_exists(c->m->driver, a->root) > 0)
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
    note(&processes, who.tgid);
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
    return is_there(c->m, &c->file, &made) == 1 && account_add(c->tenant, &made);
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

/* What the driver counts to the processes on the card, for each name that one has of it; a negative errno. */
static int64_t counted(const struct mediator *m, const struct card *card, const struct processes *p)
{
    static _Thread_local struct rm_pid_info info;
    uint64_t sum = 0;
    int e;

    for (uint32_t at = 0; at < p->count; at += info.count) {
        info = (struct rm_pid_info){.count = p->count - at};
        if (info.count > RM_MAX_PID_INFO)
            info.count = RM_MAX_PID_INFO;
        for (uint32_t i = 0; i < info.count; i++)
            info.entry[i].pid = (uint32_t)p->tgid[at + i];
        if ((e = m->ops->pid_info(m->driver, card->minor, &info)) < 0)
            return e;
        for (uint32_t i = 0; i < info.count; i++)
            sum += info.entry[i].memory_private + info.entry[i].memory_shared_owned +
                   info.entry[i].memory_shared_duped;
    }
    return (int64_t)sum;
}

static int compare(const struct mediator *m, struct tenant *t)
{
    static _Thread_local struct processes processes;
    int64_t bytes;
    uint64_t used;

    processes_of(t, &processes);
    for (uint32_t i = 0; i < m->cards; i++) {
        const struct card *card = &m->card[i];

        if (!t->granted[card->index])
            continue;
        {
            WITH_TENANT(t);
            used = t->objects.named_bytes[card->index];
        }
        /* A lost card holds nothing for any process, and the driver itself tells its tenants that. */
        if ((bytes = counted(m, card, &processes)) == -ENXIO)
            continue;
        if (bytes < 0)
            return (int)bytes;
        if ((uint64_t)bytes > used)
            return violation(m, t, card->index, (uint64_t)bytes - used);
    }
    return 0;
}

static int audit_held(const struct mediator *m, struct tenant *t)
{
    int e;

    assert_held(&t->calls);
    if ((e = confirm(m, t)) < 0 || (e = compare(m, t)) < 0)
        return e;
    if (!unconfirmed(t->continued))
        atomic_store_explicit(&t->audit_due, false, memory_order_release);
    return 0;
}

bool audit_knows(struct tenant *t, pid_t pid)
{
    const struct objects *o = &t->objects;
    bool known = false;
    WITH_TENANT(t);

    for (uint32_t i = o->slot[0].first_child; i && !known; i = o->slot[i].next_sibling)
        known = o->slot[i].client && o->slot[i].owner.tgid == pid;
    for_each_call(u, t->continued)
    {
        known |= u->file && u->who.tgid == pid;
    }
    return known;
}

void audit_stranger(const struct mediator *m, struct tenant *t, uint32_t card)
{
    violation(m, t, card, SOMETHING);
}

int audit(const struct mediator *m, struct tenant *t)
{
    if (atomic_load(&t->unaccounted_bytes))
        return -EPERM;
    WITH_CALLS_OF(t);
    return audit_passed(t) ? 0 : audit_held(m, t);
}

/* Other processes may keep its files open for as long as they like. */
static void end_clients(const struct mediator *m, struct tenant *t)
{
    const struct objects *o = &t->objects;
    struct open_file file;

    assert_held(&t->calls);
    for (uint32_t i = o->slot[0].first_child, next; i; i = next) {
        struct rm_free f = {.root = o->slot[i].client, .handle = o->slot[i].client};

        next = o->slot[i].next_sibling;
        if (!f.root || !files_by_id(m->files, o->slot[i].file, &file) ||
            mediator_call(m, &file, NULL, RM_CMD(NV_ESC_RM_FREE, sizeof(f)), &f, sizeof(f)) < 0 || f.status)
            continue;
        retained_end(m, t, i, false);
        WITH_TENANT(t);
        object_drop(t, i);
    }
}

void audit_watch(const struct mediator *m, struct tenant *t)
{
    struct timespec until = monotonic_after_ms(ROOM_WAIT_MS / 4);

    /* A call of the tenant's own may take long, and others wait for their turn here. */
    if (pthread_mutex_clocklock(&t->calls, CLOCK_MONOTONIC, &until))
        return;
    if (!t->lost && !atomic_load(&t->unaccounted_bytes))
        (void)audit_held(m, t);
    if (!t->lost && atomic_load(&t->unaccounted_bytes))
        end_clients(m, t);
    pthread_mutex_unlock(&t->calls);
}
