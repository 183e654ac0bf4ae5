#include "parked.h"
#include "base/clock.h"
#include <string.h>
#include <sys/eventfd.h>

enum { NS_PER_MS = 1000000 };

void parked_note_lent(struct call *c, const struct ledger *l, uint64_t bytes)
{
    assert_held(&c->tenant->lock);
    if (l->card && (atomic_load(&l->card->restorations) ||
                    (atomic_load(&l->card->reclaimable_bytes) && card_memory_lacks(l->card, bytes))))
        c->lent_ns = UINT64_MAX;
}

struct answer parked_or(struct call *c, uint32_t card, uint64_t bytes, uint32_t status)
{
    struct ledger *l;
    WITH_TENANT(c->tenant);

    if (!bytes || !c->may_park)
        return answered(status);
    l = &c->tenant->ledger[card];
    if (!l->card || l->kind != MEMORY_ONLINE ||
        (c->lent_ns != UINT64_MAX && monotonic_ns() - c->lent_ns > (uint64_t)PARKED_LENT_MS * NS_PER_MS))
        return answered(status);
    c->lacks_on = l;
    c->lacks_bytes = bytes;
    return parked();
}

static bool is_repeat(const struct parked_call *entry, const struct seccomp_notif *req)
{
    return entry->req.id && entry->req.pid == req->pid &&
           !memcmp(&entry->req.data, &req->data, sizeof(req->data));
}

static struct parked_call *entry_for(struct parked_calls *p, const struct seccomp_notif *req)
{
    struct parked_call *free = NULL;

    for (int i = 0; i < PARKED_MAX; i++) {
        if (is_repeat(&p->call[i], req))
            return &p->call[i];
        if (!p->call[i].req.id)
            free = &p->call[i];
    }
    return free;
}

static bool has_time(const struct mediator *m, const struct parked_call *entry)
{
    return !entry->req.id || monotonic_ns() - entry->since_ns < (uint64_t)m->evict_wait_ms * NS_PER_MS;
}

struct parked_call *parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c)
{
    struct parked_call *entry = c->m->evict_wait_ms ? entry_for(p->calls, req) : NULL;

    c->may_park = entry && has_time(c->m, entry);
    c->lent_ns = entry && entry->req.id ? entry->lent_ns : 0;
    return entry;
}

bool parked_any(const struct parked_calls *p)
{
    for (int i = 0; i < PARKED_MAX; i++)
        if (p->call[i].req.id)
            return true;
    return false;
}

bool parked_due(struct parking *p)
{
    uint64_t now;

    if (!parked_any(p->calls) || (now = monotonic_ns()) < p->serve_at_ns)
        return false;
    p->serve_at_ns = now + PARKED_LOOK_MS * (uint64_t)NS_PER_MS;
    return true;
}

static void demand(struct parking *p, const struct parked_call *entry, const struct call *c,
                   struct ledger *ledger, uint64_t bytes)
{
    struct demand *d = &p->demand[entry - p->calls->call], was = *d;

    if (was.ledger == ledger && was.bytes == bytes)
        return;
    {
        WITH_TENANT(c->tenant);
        *d = (struct demand){ledger, ledger ? ledger->card : NULL, bytes};
        if (ledger)
            ledger->demanded_bytes += bytes;
        if (was.ledger)
            was.ledger->demanded_bytes -= was.bytes;
    }
    if (d->card)
        atomic_fetch_add(&d->card->demands, 1);
    if (was.card)
        atomic_fetch_sub(&was.card->demands, 1);
    eventfd_write(c->m->events, 1);
}

/* The id is stored last: until then there is none. */
static void copy(struct seccomp_notif *to, const struct seccomp_notif *from)
{
    __atomic_store_n(&to->id, 0, __ATOMIC_RELEASE);
    to->pid = from->pid;
    to->flags = from->flags;
    to->data = from->data;
    __atomic_store_n(&to->id, from->id, __ATOMIC_RELEASE);
}

void parked_keep(struct parking *p, struct parked_call *entry, const struct seccomp_notif *req,
                 const struct call *c)
{
    if (!entry->req.id)
        entry->since_ns = monotonic_ns();
    entry->lent_ns = c->lent_ns == UINT64_MAX ? monotonic_ns() : c->lent_ns;
    copy(&entry->req, req);
    demand(p, entry, c, c->lacks_on, c->lacks_bytes);
}

void parked_take(const struct parked_call *entry, struct seccomp_notif *req)
{
    copy(req, &entry->req);
}

void parked_drop(struct parking *p, struct parked_call *entry, const struct call *c)
{
    __atomic_store_n(&entry->req.id, 0, __ATOMIC_RELEASE);
    demand(p, entry, c, NULL, 0);
}

void parked_answer(struct parking *p, struct parked_call *entry, const struct call *c)
{
    stats_parked(&c->tenant->stats, monotonic_ns() - entry->since_ns);
    parked_drop(p, entry, c);
}

void parked_end(struct parking *p, const struct call *c)
{
    for (int i = 0; i < PARKED_MAX; i++)
        demand(p, &p->calls->call[i], c, NULL, 0);
}
