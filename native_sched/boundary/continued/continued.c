#include "continued.h"
#include "native_sched/channels/groups.h"
#include "running.h"
#include "mig.h"
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>

enum { PROCESSES_MAX = 1024 };

/* In this order, so that a mgpud that ends in between leaves one entry too many and none too few. */
static void remove_client(struct continued *l, uint32_t i)
{
    uint32_t last = l->clients - 1;

    if (i != last)
        l->client[i] = l->client[last];
    __atomic_store_n(&l->client[last].calls, 0, __ATOMIC_RELEASE);
    l->clients = last;
}

void continued_recover(struct continued *l)
{
    l->clients = 0;
    for (uint32_t i = 0; i < CONTINUED_CLIENTS_MAX; i++)
        if (l->client[i].calls)
            l->client[l->clients++] = l->client[i];
    for (uint32_t i = l->clients; i < CONTINUED_CLIENTS_MAX; i++)
        l->client[i].calls = 0;
    if (l->runs > CONTINUED_THREADS_MAX)
        l->runs = CONTINUED_THREADS_MAX;
    l->begun = true;
}

void continued_forget(struct tenant *t, uint64_t file)
{
    struct continued *l = t->continued;

    assert_held(&t->lock);
    for (uint32_t i = 0; i < l->clients;)
        if (l->client[i].file == file)
            remove_client(l, i);
        else
            i++;
    mig_forget(l, file);
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
static void processes_of(const struct tenant *t, struct processes *out)
{
    const struct objects *o = &t->objects;

    assert_held(&t->lock);
    out->count = 0;
    out->overflow = false;
    for (uint32_t i = o->slot[0].first_child; i; i = o->slot[i].next_sibling)
        if (o->slot[i].client)
            note(out, o->slot[i].owner.tgid);
    for (uint32_t i = 0; i < t->continued->clients; i++)
        note(out, t->continued->client[i].who.tgid);
}

/* False when there is no room. */
static bool expect_client(struct continued *l, uint64_t file, const struct process_id *who, bool doubt)
{
    uint32_t i = 0;

    while (i < l->clients && (l->client[i].file != file || l->client[i].who.tgid != who->tgid))
        i++;
    if (i == CONTINUED_CLIENTS_MAX)
        return false;
    if (i == l->clients) {
        l->client[i].file = file;
        l->client[i].calls = l->client[i].doubtful = 0;
        l->clients++;
    }
    l->client[i].who = *who;
    l->client[i].calls++;
    l->client[i].doubtful += doubt;
    return true;
}

static void found_client(struct continued *l, int at)
{
    if (l->client[at].doubtful)
        l->client[at].doubtful--;
    if (l->client[at].calls == 1)
        remove_client(l, (uint32_t)at);
    else
        l->client[at].calls--;
}

/* Whether the call's file may have a client already, from which what a flipped class makes could hang. */
static bool may_have_client(const struct tenant *t, uint64_t file)
{
    const struct objects *o = &t->objects;

    assert_held(&t->lock);
    for (uint32_t i = o->slot[0].first_child; i; i = o->slot[i].next_sibling)
        if (o->slot[i].file == file && o->slot[i].client)
            return true;
    for (uint32_t i = 0; i < t->continued->clients; i++)
        if (t->continued->client[i].file == file)
            return true;
    return false;
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

struct answer continued_pin_pages(struct call *c)
{
    WITH_CALLS_OF(c->tenant);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    if (c->tenant->continued->runs == CONTINUED_THREADS_MAX)
        return failed(-EPERM);
    if (!c->m->ops->as_caller)
        return continued_begin(c);
    atomic_store_explicit(&c->tenant->audit_due, true, memory_order_release);
    return continued_as_caller(c);
}

struct answer continued_commit(struct call *c)
{
    struct tenant *t = c->tenant;
    struct continued *l = t->continued;
    struct processes processes;
    struct process_id who;
    bool first, doubt;
    int e = caller_process_id(c->caller, &who);

    assert_held(&c->tenant->calls);
    if (e < 0)
        return failed(e);
    if (!caller_waits(c->caller))
        return failed(-EINTR);
    {
        WITH_TENANT(t);
        processes_of(t, &processes);
        note(&processes, who.tgid);
        doubt = !c->m->ops->as_caller && may_have_client(t, c->file.id);
        if ((doubt && continued_unconfirmed(t) >= CONTINUED_UNCONFIRMED_MAX) ||
            l->runs == CONTINUED_THREADS_MAX || processes.overflow || !files_open(c->m->files, &c->file) ||
            !expect_client(l, c->file.id, &who, doubt))
            return answered(NV_ERR_NO_MEMORY);
    }
    /* What a flipped class adds to a group of the tenant's is no channel that we could name. */
    if (doubt && (e = groups_unconfirmed(t->groups, true)) < 0)
        return failed(e);
    if (!c->m->ops->as_caller)
        return continued_begin(c);
    /* The first can make one root client at most: whatever else it asks for needs a client to hang from. */
    first = !l->begun;
    l->begun = true;
    if (!first)
        atomic_store_explicit(&t->audit_due, true, memory_order_release);
    return continued_as_caller(c);
}

/* What the driver counts to the processes on the card, for each name that one has of it; a negative errno. */
static int64_t counted(const struct call *c, const struct card *card, const struct processes *p)
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
        if ((e = c->m->ops->pid_info(c->m->driver, card->minor, &info)) < 0)
            return e;
        for (uint32_t i = 0; i < info.count; i++)
            sum += info.entry[i].memory_private + info.entry[i].memory_shared_owned +
                   info.entry[i].memory_shared_duped;
    }
    return (int64_t)sum;
}

int audit(struct call *c)
{
    struct tenant *t = c->tenant;
    struct processes processes;
    int64_t bytes;
    uint64_t used;
    int e;

    if (atomic_load(&t->unaccounted_bytes))
        return -EPERM;
    WITH_CALLS_OF(t);
    if (audit_passed(t))
        return 0;
    forget_finished(t->continued, (pid_t)c->caller->req->pid);
    if ((e = mig_poll(c)) < 0)
        return e;
    {
        WITH_TENANT(t);
        processes_of(t, &processes);
    }
    for (uint32_t i = 0; i < c->m->cards; i++) {
        const struct card *card = &c->m->card[i];

        if (!t->granted[card->index])
            continue;
        {
            WITH_TENANT(t);
            /* The driver counts to no process what no client has a name of, nor what it takes for itself. */
            used = t->objects.named_bytes[card->index];
        }
        /* A lost card holds nothing for any process, and the driver itself tells its tenants that. */
        if ((bytes = counted(c, card, &processes)) == -ENXIO)
            continue;
        if (bytes < 0)
            return (int)bytes;
        if ((uint64_t)bytes > used) {
            stats_audit_mismatch(&t->stats, card->index);
            atomic_store(&t->unaccounted_bytes, (uint64_t)bytes - used);
            eventfd_write(c->m->events, 1);
            return -EPERM;
        }
    }
    /* An unlocated file cannot be asked for its subscriptions. */
    if (!t->continued->runs && mig_open(t->continued, false) == mig_open(t->continued, true))
        atomic_store_explicit(&t->audit_due, false, memory_order_release);
    return 0;
}

/* A control that every root client answers and that shows nothing. On that file it succeeds only for a client
 * of that file. */
static int is_client(struct call *c, const struct open_file *file, uint32_t client)
{
    struct rm_gpu_ids ids;
    struct rm_control ctl = {
        .client = client,
        .object = client,
        .cmd = NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS,
        .params_size = sizeof(ids),
    };
    struct driver_call d = call_for_driver(c, file);
    int e;

    d.cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl));
    d.outer = (uint8_t *)&ctl;
    d.outer_bytes = sizeof(ctl);
    d.params = (uint8_t *)&ids;
    d.params_bytes = sizeof(ids);
    e = c->m->ops->execute(c->m->driver, &d);
    return e < 0 ? e : ctl.status == NV_OK;
}

/* The one of the caller's process, if there is one: a file can be shared between processes. -ENOENT. */
static int waiting(const struct continued *l, uint64_t file, pid_t tgid)
{
    int found = -ENOENT;

    for (uint32_t i = 0; i < l->clients; i++)
        if (l->client[i].file == file && (found < 0 || l->client[i].who.tgid == tgid))
            found = (int)i;
    return found;
}

int continued_adopt_client(struct call *c, uint32_t client)
{
    struct tenant *t = c->tenant;
    struct continued *l = t->continued;
    struct open_file file;
    int64_t slot;
    int e, at;

    if (!call_control_file(c, &file))
        return 0;
    WITH_CALLS_OF(t);
    {
        WITH_TENANT(t);
        at = waiting(l, file.id, caller_tgid(c->caller));
        if (at < 0 || !client || objects_find(&t->objects, client, client))
            return 0;
    }
    if ((e = is_client(c, &file, client)) <= 0)
        return e;
    WITH_TENANT(t);
    if (!files_open(c->m->files, &file))
        return 0;
    slot = objects_add(&t->objects, 0, client, client, NV01_ROOT_CLIENT);
    if (slot < 0)
        return 0;
    t->objects.slot[slot].file = file.id;
    t->objects.slot[slot].owner = l->client[at].who;
    objects_commit(&t->objects, (uint32_t)slot);
    found_client(l, at);
    return continued_any_unconfirmed(t) ? 0 : groups_unconfirmed(t->groups, false);
}
