/* The driver's count of a tenant's memory, against the account. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "continued.h"
#include "native_sched/nvidia/boundary/objects/drop.h"
#include "native_sched/nvidia/boundary/objects/retained.h"
#include "private.h"
#include <errno.h>
#include <sys/eventfd.h>

enum { TURN_WAIT_MS = 250 };
/* What `unaccounted_bytes` says where no one knows what was made. */
enum { UNKNOWN_BYTES = 1 };

void processes_note(struct processes *p, pid_t tgid)
{
    for (uint32_t i = p->count; i-- > 0;)
        if (p->tgid[i] == tgid)
            return;
    if (p->count == PROCESSES_MAX)
        p->overflow = true;
    else
        p->tgid[p->count++] = tgid;
}

void processes_of(struct tenant *t, struct processes *out)
{
    const struct objects *o = &t->objects;
    WITH_TENANT(t);

    out->count = 0;
    out->overflow = false;
    for (uint32_t i = o->slot[0].first_child; i; i = o->slot[i].next_sibling)
        if (o->slot[i].client)
            processes_note(out, o->slot[i].owner.tgid);
    if (t->unconfirmed->file)
        processes_note(out, t->unconfirmed->who.tgid);
}

static int violation(const struct mediator *m, struct tenant *t, uint32_t card, uint64_t bytes)
{
    /* Once for a tenant, however many of its calls are refused until it has ended. */
    if (!atomic_exchange(&t->unaccounted_bytes, bytes))
        stats_audit_mismatch(&t->stats, card);
    eventfd_write(m->events, 1);
    return -EPERM;
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

/* confirmed: what confirm() has found. */
static int audit_held(const struct mediator *m, struct tenant *t, int confirmed)
{
    int e;

    assert_held(&t->calls);
    if (confirmed < 0)
        return confirmed;
    if ((e = compare(m, t)) == 0 && confirmed > 0)
        e = violation(m, t, 0, UNKNOWN_BYTES);
    if (e < 0)
        return e;
    if (!t->unconfirmed->file)
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
    return known || (t->unconfirmed->file && t->unconfirmed->who.tgid == pid);
}

void audit_stranger(const struct mediator *m, struct tenant *t, uint32_t card)
{
    violation(m, t, card, UNKNOWN_BYTES);
}

int audit(struct call *c)
{
    struct tenant *t = c->tenant;

    WITH_CALLS_OF(t);
    /* Known only now: the poller may have found it, and freed all that shows it, while this call waited. */
    if (atomic_load(&t->unaccounted_bytes))
        return -EPERM;
    if (audit_passed(t))
        return 0;
    return audit_held(c->m, t, confirm_wait(c));
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
    struct timespec until = monotonic_after_ms(TURN_WAIT_MS);

    /* A call of the tenant's own may take long, and others wait for their turn here. */
    if (pthread_mutex_clocklock(&t->calls, CLOCK_MONOTONIC, &until))
        return;
    if (!t->lost && !atomic_load(&t->unaccounted_bytes))
        (void)audit_held(m, t, confirm(m, t, false));
    if (!t->lost && atomic_load(&t->unaccounted_bytes)) {
        confirm_end(m, t);
        end_clients(m, t);
    }
    pthread_mutex_unlock(&t->calls);
}
