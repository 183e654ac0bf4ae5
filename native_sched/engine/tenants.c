/* The functions of engine.h that concern tenants and their listeners. */
#define _GNU_SOURCE
#include "engine.h"
#include "engine_private.h"
#include "native_sched/loop/entities.h"
#include "native_sched/nvidia/account/external.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/page.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
#include "native_sched/nvidia/boundary/rm/usage.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tenant's slot; for id 0 a free one. */
static struct tenant *slot_of(struct mgpu_engine *e, uint64_t id)
{
    for (uint32_t i = 0; i < MAX_TENANTS; i++)
        if (e->tenant[i].id == id)
            return &e->tenant[i];
    return NULL;
}

struct tenant *tenant_by_id(struct mgpu_engine *e, uint64_t id)
{
    struct tenant *t = id ? slot_of(e, id) : NULL;

    return t && !t->lost ? t : NULL;
}

static void account_close(struct tenant *t)
{
    if (t->groups)
        groups_destroy(t->groups);
    free(t->groups);
    t->groups = NULL;
    free(t->utilization);
    t->utilization = NULL;
    t->unconfirmed = NULL;
    objects_destroy(&t->objects);
    external_close(t->external);
    t->external = NULL;
    managed_close(t->managed);
    t->managed = NULL;
    store_close(&t->store);
}

void tenant_destroy(struct tenant *t)
{
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        ledger_join(&t->ledger[i], NULL, MEMORY_UNSHARED);
    account_close(t);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->calls);
    pthread_cond_destroy(&t->file_closed);
    t->id = 0;
}

static int account_open(struct mgpu_engine *e, struct tenant *t)
{
    struct groups *groups = calloc(1, sizeof(*groups));
    int error;

    if (!groups)
        return -ENOMEM;
    if ((error = groups_init(groups, e->mediator.ops, e->mediator.driver, &e->refusals, &e->ids,
                             e->loop.kick)) < 0) {
        free(groups);
        return error;
    }
    t->groups = groups;
    if (!(t->utilization = calloc(1, sizeof(*t->utilization))))
        return -ENOMEM;
    return tenant_open(&e->mediator, t, e->journal, e->left);
}

/* Returns as tenant_open(). If that fails and the previous mgpud has left the tenant, it is unrecovered. */
static int open_or_mark_lost(struct mgpu_engine *e, struct tenant *t)
{
    /* Keeps files that close now from being reaped. */
    WITH_CALLS_OF(t);
    int error = account_open(e, t);

    if (error < 0) {
        t->lost = tenant_has_orphans(&e->mediator, t, e->journal);
        account_close(t);
    }
    return error;
}

int mgpu_tenant_add(struct mgpu_engine *e, uint64_t id)
{
    WITH_ENGINE(e);
    struct tenant *t;
    int error;

    if (!id || slot_of(e, id))
        return id ? -EEXIST : -EINVAL;
    if (!(t = slot_of(e, 0)))
        return -ENOSPC;
    memset(t, 0, sizeof(*t));
    t->store.fd = -1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->calls, NULL);
    cond_init_monotonic(&t->file_closed);
    t->id = id;
    t->polled_ns = loop_now_ns();
    if ((error = open_or_mark_lost(e, t)) < 0 && !t->lost)
        tenant_destroy(t);
    return error;
}

/* Tells the driver table who may receive its files, once all are known. */
static int guard(struct mgpu_engine *e)
{
    const struct mediator *m = &e->mediator;
    uint32_t pid_ns[MAX_TENANTS], n = 0;

    assert_held(&e->lock);
    if (!e->all_there || !m->ops->guard)
        return 0;
    for (const struct tenant *t = e->tenant; t < e->tenant + MAX_TENANTS; t++)
        if (t->id)
            pid_ns[n++] = t->ended ? 0 : (uint32_t)t->pid_space;
    return m->ops->guard(m->driver, pid_ns, n);
}

static bool known(void *engine, uint64_t tenant)
{
    return slot_of(engine, tenant);
}

int mgpu_recovered(struct mgpu_engine *e)
{
    WITH_ENGINE(e);

    e->all_there = true;
    e->guarded = guard(e);
    if (e->journal < 0)
        return 0;
    return (int)(orphans_forget(&e->left, e->journal, known, e) + files_forget_orphans(&e->files));
}

static bool has_another_instance(const struct mgpu_engine *e, const struct tenant *t, const struct card *k)
{
    for (uint32_t i = 0; i < e->mediator.cards; i++)
        if (e->mediator.card[i].minor == k->minor && e->mediator.card[i].index != k->index &&
            t->granted[e->mediator.card[i].index])
            return true;
    return false;
}

/* Another tenant is on the card; alone: such as holds it alone. */
static bool has_another(struct mgpu_engine *e, const struct tenant *t, uint32_t card, bool alone)
{
    for (uint32_t i = 0; i < MAX_TENANTS; i++) {
        struct tenant *other = &e->tenant[i];

        if (other != t && other->id && other->granted[card] && (!alone || other->whole))
            return true;
    }
    return false;
}

int mgpu_tenant_grant(struct mgpu_engine *e, uint64_t id, uint32_t card, uint64_t cap_bytes)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    const struct card *k = mediator_card(&e->mediator, card);

    if (!t || !k)
        return -ENOENT;
    WITH_TENANT(t);
    if (has_another_instance(e, t, k))
        return -EEXIST;
    if (has_another(e, t, card, !t->whole))
        return -EBUSY;
    /* Managed memory may migrate to any of its cards, from now on to this one too. */
    if (!t->granted[card])
        ledger_charge(&t->ledger[card], managed_held(t));
    t->granted[card] = true;
    ledger_set_cap(&t->ledger[card], cap_bytes);
    return 0;
}

int mgpu_tenant_whole(struct mgpu_engine *e, uint64_t id)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    uint32_t cards = 0;

    if (!t)
        return -ENOENT;
    WITH_TENANT(t);
    for (uint32_t i = 0; i < e->mediator.cards; i++) {
        const struct card *k = &e->mediator.card[i];

        if (!t->granted[k->index])
            continue;
        if (k->gpu_instance != RM_NO_INSTANCE)
            return -EINVAL;
        if (has_another(e, t, k->index, false))
            return -EBUSY;
        cards++;
    }
    t->whole = cards != 0;
    return cards ? 0 : -EINVAL;
}

int mgpu_tenant_capabilities(struct mgpu_engine *e, uint64_t id, uint32_t capabilities)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    t->capabilities = capabilities;
    return 0;
}

static bool has_objects_on(const struct tenant *t, uint32_t card)
{
    for (uint32_t i = objects_next(&t->objects, 0, 0); i; i = objects_next(&t->objects, 0, i))
        if (t->objects.slot[i].card == card)
            return true;
    return false;
}

static void leave_card(struct tenant *t, const struct card *card)
{
    t->granted[card->index] = false;
    ledger_join(&t->ledger[card->index], NULL, MEMORY_UNSHARED);
    t->ledger[card->index] = (struct ledger){0};
    for (uint32_t i = 0; i < t->nodes; i++)
        if (t->node[i].kind == NODE_CARD && t->node[i].minor == card->minor)
            __atomic_store_n(&t->node[i].minor, (uint32_t)NODE_LEFT, __ATOMIC_RELAXED);
}

int mgpu_tenant_move(struct mgpu_engine *e, uint64_t id, uint32_t from, uint32_t to)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    const struct card *old = mediator_card(&e->mediator, from), *new = mediator_card(&e->mediator, to);
    struct ledger was;
    int error = 0;

    if (!t || !old || !new)
        return -ENOENT;
    /* A call that is under way may be about to make something there. */
    if (pthread_mutex_trylock(&t->calls))
        return -EAGAIN;
    {
        WITH_TENANT(t);
        was = t->ledger[from];
        if (!t->granted[from] || t->granted[to] || has_another_instance(e, t, new) || t->whole ||
            has_another(e, t, to, true))
            error = -EINVAL;
        else if (was.used_bytes || was.reserved_bytes || has_objects_on(t, from))
            error = -EBUSY;
        if (!error) {
            leave_card(t, old);
            t->granted[to] = true;
            ledger_set_cap(&t->ledger[to], was.cap_bytes);
            ledger_join(&t->ledger[to], was.card ? &e->memory[to] : NULL, was.kind);
            ledger_reclaim(&t->ledger[to], was.closed, 0);
        }
    }
    pthread_mutex_unlock(&t->calls);
    return error;
}

int mgpu_tenant_add_node(struct mgpu_engine *e, uint64_t id, uint64_t dev, uint64_t ino, uint32_t kind,
                         uint32_t minor)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t || kind > NODE_UVM)
        return -ENOENT;
    WITH_TENANT(t);
    for (uint32_t i = 0; i < t->nodes; i++)
        if (t->node[i].dev == dev && t->node[i].ino == ino) {
            __atomic_store_n(&t->node[i].minor, minor, __ATOMIC_RELAXED);
            return 0;
        }
    if (t->nodes == TENANT_MAX_NODES)
        return -ENOSPC;
    /* Read without the lock: the entry is complete before the count includes it. */
    t->node[t->nodes] = (struct tenant_node){
        .dev = dev, .ino = ino, .kind = (enum node_kind)kind, .minor = minor};
    __atomic_store_n(&t->nodes, t->nodes + 1, __ATOMIC_RELEASE);
    return 0;
}

int mgpu_tenant_space(struct mgpu_engine *e, uint64_t id, uint64_t pid_space)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    int error;

    if (!t)
        return -ENOENT;
    t->pid_space = pid_space;
    error = guard(e);
    return e->guarded > 0 && error < 0 ? error : 0;
}

int mgpu_tenant_usage(struct mgpu_engine *e, uint64_t id, uint32_t card, struct mgpu_usage *out)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    const struct ledger *l;

    if (!t || card >= MAX_CARDS)
        return -ENOENT;
    WITH_TENANT(t);
    l = &t->ledger[card];
    *out = (struct mgpu_usage){l->cap_bytes, l->used_bytes, l->reserved_bytes, l->peak_bytes};
    return 0;
}

int mgpu_tenant_state(struct mgpu_engine *e, uint64_t id, struct mgpu_tenant_state *out)
{
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    WITH_TENANT(t);
    *out = (struct mgpu_tenant_state){
        .listeners = t->listeners,
        .files = files_of(&e->files, t),
        .objects = t->objects.live,
        .unsuspendable = loop_unsuspendable(&e->loop, id),
        .refused = groups_suspend_status(t->groups),
        .unaccounted_bytes = atomic_load(&t->unaccounted_bytes),
        .parked_ns = atomic_load(&t->stats.parked_ns),
    };
    for (int i = 0; i < MGPU_LATENCY_BUCKETS; i++)
        out->parked += atomic_load(&t->stats.parked[i]);
    return 0;
}

int mgpu_tenant_processes(struct mgpu_engine *e, uint64_t id, struct mgpu_process *out, uint32_t max)
{
    static _Thread_local struct process_use use[USAGE_MAX];
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    uint32_t n;

    if (!t)
        return -ENOENT;
    WITH_TENANT(t);
    n = usage_by_process(t, use, max);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct mgpu_process){use[i].who.tgid, use[i].card, use[i].bytes};
    return (int)n;
}

int mgpu_tenant_remove(struct mgpu_engine *e, uint64_t id)
{
    WITH_ENGINE(e);
    struct tenant *t = id ? slot_of(e, id) : NULL;

    if (!t)
        return -ENOENT;
    t->ended = true;
    (void)guard(e); /* what cannot be taken out now goes with the next one */
    {
        WITH_TENANT(t); /* the thread that counted down to 0 has dropped the tenant by then */
        if (t->listeners)
            return -EBUSY;
    }
    if (files_of(&e->files, t)) {
        if (e->mediator.ops->tenant_exited)
            e->mediator.ops->tenant_exited(e->mediator.driver, t);
        (void)close_awaited(&e->mediator, t);
        return -EBUSY;
    }
    if (managed_poller_at(e, t))
        return -EBUSY;
    loop_forget(&e->loop, id);
    stats_keep_tenant(e, t);
    external_remove(t->external);
    managed_remove(t->managed);
    store_remove(&t->store);
    if (t->lost)
        tenant_forget(id, e->journal);
    tenant_destroy(t);
    (void)guard(e);
    return 0;
}

int mgpu_engine_guarded(const struct mgpu_engine *e)
{
    return e->guarded;
}

/* The page that the previous mgpud wrote for this listener, or a new one. */
static int open_page(struct mgpu_engine *e, struct listener *l, uint64_t holder_id)
{
    struct orphan_page *left = orphan_page_take(&e->left, holder_id, l->tenant->id);
    char name[STORE_NAME_MAX];
    int error;

    if (left) {
        l->store = left->store;
        free(left);
        return 0;
    }
    snprintf(name, sizeof(name), "listener-%llu", (unsigned long long)holder_id);
    if ((error = store_open(&l->store, e->journal, name, &listener_layout)) < 0)
        return error;
    /* Another tenant's page, of an earlier run of the holder. */
    if (l->store.found) {
        store_remove(&l->store);
        if ((error = store_open(&l->store, e->journal, name, &listener_layout)) < 0)
            return error;
    }
    if ((error = store_reach(&l->store, sizeof(struct listener_page))) < 0) {
        store_remove(&l->store);
        return error;
    }
    ((struct listener_page *)(void *)l->store.at)->tenant = l->tenant->id;
    return 0;
}

int mgpu_listener_add(struct mgpu_engine *e, uint64_t id, int fd, uint64_t holder_id)
{
    struct listener *l = calloc(1, sizeof(*l));
    WITH_ENGINE(e);
    struct tenant *t = tenant_by_id(e, id);
    int error = !l ? -ENOMEM : !t ? -ENOENT : 0;
    bool inflight = false;

    if (!error) {
        *l = (struct listener){.m = &e->mediator, .tenant = t, .fd = fd, .ended = e->wake};
        error = open_page(e, l, holder_id);
        inflight = !error && ((struct listener_page *)(void *)l->store.at)->inflight.req.id;
        if (!error && (error = listener_start(l)) < 0)
            store_close(&l->store);
    }
    if (error < 0) {
        free(l);
        close(fd);
        return error;
    }
    pthread_mutex_lock(&t->lock);
    t->listeners++;
    pthread_mutex_unlock(&t->lock);
    l->next = e->listeners;
    e->listeners = l;
    reaper_wake(e);
    return inflight;
}

int mgpu_tenant_refused(struct mgpu_engine *e, uint64_t id, uint64_t *out)
{
    WITH_ENGINE(e);
    const struct tenant *t = tenant_by_id(e, id);

    if (!t)
        return -ENOENT;
    for (int i = 0; i < MGPU_REFUSED_KINDS; i++)
        out[i] = atomic_load_explicit(&t->stats.refused[i], memory_order_relaxed);
    return 0;
}
