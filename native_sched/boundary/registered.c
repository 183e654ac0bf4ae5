#include "registered.h"
#include "../channels/groups.h"
#include "let_through.h"
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What could become of those that there are at the most, and of one that is made and not booked. */
enum { FULL = REGISTERED_MAX - CHANNELS_MAX - GROUPS_MAX - 1 };

/* The end of UNREGISTER_CHANNEL's parameters. Before 590.44 the name of a GPU goes before, which is not looked at. */
struct unregister {
    uint32_t client, channel, status;
};

static uint32_t check_of(const struct retained *m)
{
    return store_check((const uint8_t *)m + sizeof(m->check),
                       offsetof(struct retained, file) - sizeof(m->check));
}

static struct retained *first(const struct registered *r)
{
    return r->page->slot;
}

static struct retained *end(const struct registered *r)
{
    return r->page->slot + r->high;
}

/* Another record of the group. */
static struct retained *of_group(const struct registered *r, uint64_t group, const struct retained *but)
{
    for (struct retained *m = first(r); m < end(r); m++)
        if (m->check && m->group == group && m != but)
            return m;
    return NULL;
}

static void put_free(struct registered *r, struct retained *m)
{
    *m = (struct retained){.next_free = r->free_head};
    r->free_head = (uint32_t)(m - r->page->slot) + 1;
}

static void drop(struct registered *r, struct retained *m)
{
    struct retained *heir = of_group(r, m->group, m);

    __atomic_store_n(&m->check, 0, __ATOMIC_RELEASE);
    if (m->held_bytes && heir) {
        heir->held_bytes = m->held_bytes;
    } else if (m->held_bytes) {
        ledger_release(&r->ledger[m->card], m->held_bytes);
    }
    put_free(r, m);
    r->live--;
}

/* There is some: registered_full(). */
static struct retained *take_free(struct registered *r)
{
    uint32_t i = r->free_head;

    if (!i)
        return r->high < REGISTERED_MAX ? &r->page->slot[r->high++] : NULL;
    r->free_head = r->page->slot[i - 1].next_free;
    return &r->page->slot[i - 1];
}

static void add(struct registered *r, const struct retained *what)
{
    struct retained *m = take_free(r);

    if (!m)
        return;
    *m = *what;
    __atomic_store_n(&m->check, check_of(m), __ATOMIC_RELEASE);
    r->live++;
    atomic_store(&r->due, true);
}

/* Threads that are no more, and the one that calls, have nothing in the kernel. The bits of the others. */
static uint32_t finish(struct registered *r, pid_t caller)
{
    uint32_t running = 0;

    for (int i = 0; i < REGISTERING_MAX; i++) {
        pid_t tid = r->page->registering[i];

        if (tid && (tid == caller || (kill(tid, 0) < 0 && errno == ESRCH)))
            r->page->registering[i] = tid = 0;
        running |= tid ? 1u << i : 0;
    }
    for (struct retained *m = first(r); m < end(r); m++)
        m->waits &= running;
    return running;
}

static uint64_t newest_file(const struct mediator *m, const struct tenant *t)
{
    struct open_file file[REGISTERED_FILES];
    uint32_t n = files_of_kind(m->files, t, NODE_UVM, file, REGISTERED_FILES);
    uint64_t newest = 0;

    for (uint32_t i = 0; i < n; i++)
        newest = file[i].id > newest ? file[i].id : newest;
    return newest;
}

static void note(struct tenant *t, uint32_t group, const struct retained *what)
{
    struct objects *o = &t->objects;
    const struct rm_object *obj = &o->slot[group];
    struct retained m = {
        .client = obj->client,
        .channel = what->channel,
        .card = obj->card,
        .group = objects_memory(o, group),
        .bytes = obj->bytes,
        .newest = what->newest,
        .owner = o->slot[objects_root(o, group)].owner,
        .file = what->file,
        .waits = what->waits,
    };

    if (obj->class_id == KEPLER_CHANNEL_GROUP_A && obj->card < MAX_CARDS)
        add(t->registered, &m);
}

static void note_group(const struct mediator *m, struct tenant *t, uint32_t group)
{
    uint64_t file = t->objects.slot[objects_root(&t->objects, group)].file;

    if (let_through_in_doubt(t, file))
        note(t, group, &(struct retained){.newest = newest_file(m, t), .file = file});
}

void registered_note(const struct mediator *m, struct tenant *t, uint32_t slot)
{
    const struct objects *o = &t->objects;
    struct registered *r = t->registered;
    uint32_t running;

    if (!slot || !r->begun)
        return;
    running = atomic_load(&r->due) ? finish(r, 0) : 0;
    for (uint32_t i = slot; i; i = objects_next(o, slot, i))
        if (rm_class_is_channel(o->slot[i].class_id))
            note(t, o->slot[i].parent, &(struct retained){.channel = o->slot[i].handle, .waits = running});
        else if (o->slot[i].class_id == KEPLER_CHANNEL_GROUP_A)
            note_group(m, t, i);
}

void registered_note_channel(struct tenant *t, uint32_t client, uint32_t parent, uint32_t channel)
{
    uint32_t group = objects_find(&t->objects, client, parent);

    if (group && channel && t->registered->begun)
        note(t, group, &(struct retained){.channel = channel, .waits = finish(t->registered, 0)});
}

/* All of the files have said that they do not retain it. One that is not initialised has nothing. */
static bool unregister(const struct mediator *m, const struct open_file *file, uint32_t files,
                       const struct retained *what)
{
    uint32_t bytes = (uint32_t)rm_uvm_params(&m->rm, UVM_UNREGISTER_CHANNEL);
    bool all = true;

    for (uint32_t i = 0; i < files; i++) {
        _Alignas(8) uint8_t outer[32] = {0};
        struct unregister u = {.client = what->client, .channel = what->channel};
        int e;

        memcpy(outer + bytes - sizeof(u), &u, sizeof(u));
        e = mediator_call(m, &file[i], NULL, UVM_UNREGISTER_CHANNEL, outer, bytes);
        memcpy(&u, outer + bytes - sizeof(u), sizeof(u));
        all &= e == -EBADF || (e == 0 && (u.status == NV_OK || u.status == NV_ERR_INVALID_CHANNEL ||
                                          u.status == NV_ERR_ILLEGAL_ACTION));
    }
    return all;
}

static bool let_go(const struct mediator *m, const struct tenant *t, struct retained *what,
                   const struct open_file *file, uint32_t files, bool ask)
{
    bool unsure = initialize_unsure(&t->registered->page->initialize);

    if (!what->channel) {
        if (unsure)
            return false;
        if (what->file && !let_through_in_doubt(t, what->file))
            return true;
        for (uint32_t i = 0; i < files; i++)
            if (file[i].id <= what->newest)
                return false;
        return true;
    }
    if (what->waits)
        return false;
    if (!files)
        return !unsure;
    /* By a name that another channel has by now that one would be stopped. */
    if (ask && !(unsure && what->asked) && !objects_find(&t->objects, what->client, what->channel))
        what->asked = unregister(m, file, files, what);
    return ask && what->asked && !unsure;
}

/* What came of calls that are over, or the kernel's word that all files that are open are known: each is asked once more. */
static bool look_at_files(const struct mediator *m, struct registered *r)
{
    struct initialize_calls *calls = &r->page->initialize;
    bool running = initialize_look(m, calls, 0);

    if (r->live && calls->astray && m->ops->sees_all_uvm && m->ops->sees_all_uvm(m->driver))
        calls->astray = 0;
    return running;
}

void registered_look(const struct mediator *m, struct tenant *t, bool ask)
{
    struct registered *r = t->registered;
    struct open_file file[REGISTERED_FILES];
    uint32_t files, running;
    bool initializing;

    if (!r->begun || !atomic_load(&r->due))
        return;
    running = finish(r, 0);
    initializing = look_at_files(m, r);
    files = files_of_kind(m->files, t, NODE_UVM, file, REGISTERED_FILES);
    for (struct retained *what = first(r); r->live && what < end(r); what++)
        if (what->check && let_go(m, t, what, file, files, ask)) {
            WITH_TENANT(t);
            drop(r, what);
        }
    atomic_store(&r->due, r->live || running || initializing);
}

void registered_file_gone(struct tenant *t, const struct open_file *file)
{
    struct registered *r = t->registered;

    if (!r->begun)
        return;
    initialize_file_gone(&r->page->initialize, file);
    for (struct retained *m = first(r); m < end(r); m++)
        if (m->file == file->id)
            m->file = 0;
}

void registered_settle(struct call *c)
{
    struct registered *r = c->tenant->registered;
    pid_t tid = (pid_t)c->caller->req->pid;
    WITH_CALLS_OF(c->tenant);

    finish(r, tid);
    initialize_look(c->m, &r->page->initialize, tid);
    registered_look(c->m, c->tenant, true);
}

int registered_begin(struct registered *r)
{
    int e;

    if (r->begun)
        return 0;
    if ((e = store_reach(&r->store, sizeof(*r->page))) < 0)
        return e;
    r->begun = r->page->begun = true;
    return 0;
}

static int refuse(struct call *c, uint32_t status)
{
    uint32_t bytes = (uint32_t)rm_uvm_params(&c->m->rm, UVM_REGISTER_CHANNEL);

    stats_refused(&c->tenant->stats, status);
    memcpy(c->params, &status, sizeof(status));
    c->params_at = c->outer_at + bytes - UVM_STATUS_FROM_END;
    c->params_bytes = sizeof(status);
    c->params_out = true;
    return 0;
}

int register_channel(struct call *c)
{
    struct registered *r = c->tenant->registered;
    pid_t tid = (pid_t)c->caller->req->pid;
    int i = 0;
    WITH_CALLS_OF(c->tenant);

    if (!caller_waits(c->caller))
        return -EINTR;
    if (registered_begin(r) < 0)
        return refuse(c, NV_ERR_NO_MEMORY);
    finish(r, tid);
    while (i < REGISTERING_MAX && r->page->registering[i])
        i++;
    if (i == REGISTERING_MAX)
        return refuse(c, NV_ERR_NO_MEMORY);
    __atomic_store_n(&r->page->registering[i], tid, __ATOMIC_RELEASE);
    atomic_store_explicit(&r->due, true, memory_order_release);
    c->passed = true;
    return -EINPROGRESS;
}

bool registered_may_hold(const struct registered *r, const struct open_file *file)
{
    return r && r->begun && initialize_matters(&r->page->initialize, file);
}

void registered_lost(struct registered *r)
{
    if (r && r->begun)
        r->page->initialize.astray++;
}

bool registered_full(const struct tenant *t)
{
    return t->registered->live >= FULL;
}

bool registered_holds(struct registered *r, const struct rm_object *obj)
{
    struct retained *m = r->begun && obj->memory && obj->class_id == KEPLER_CHANNEL_GROUP_A
                             ? of_group(r, obj->memory, NULL)
                             : NULL;

    if (m)
        m->held_bytes = m->bytes;
    return m;
}

/* The numbers of their groups are given to nothing else. */
static void take_over(struct registered *r, struct objects *o)
{
    for (uint32_t i = 0; i < REGISTERED_MAX; i++)
        if (r->page->slot[i].check && r->page->slot[i].check == check_of(&r->page->slot[i]))
            r->high = i + 1;
    for (struct retained *m = first(r); m < end(r); m++) {
        m->held_bytes = 0;
        m->asked = false;
        if (!m->check || m->check != check_of(m) || m->card >= MAX_CARDS) {
            put_free(r, m);
            continue;
        }
        r->live++;
        if (m->group > o->last_memory)
            o->last_memory = m->group;
    }
    atomic_store(&r->due, true);
}

void registered_name(uint64_t tenant, char name[STORE_NAME_MAX])
{
    snprintf(name, STORE_NAME_MAX, "registered-%llu", (unsigned long long)tenant);
}

int registered_open(struct tenant *t, int folder, bool earlier)
{
    static const struct store_layout layout = {
        .kind = STORE_REGISTERED,
        .record_bytes = sizeof(struct registered_page),
        .max_bytes = sizeof(struct registered_page),
    };
    struct registered *r = calloc(1, sizeof(*r));
    char name[STORE_NAME_MAX];
    int e;

    if (!r)
        return -ENOMEM;
    registered_name(t->id, name);
    if ((e = store_open(&r->store, folder, name, &layout)) < 0) {
        free(r);
        return e;
    }
    r->page = (struct registered_page *)(void *)r->store.at;
    r->ledger = t->ledger;
    if (r->store.found && r->store.reached_bytes >= sizeof(*r->page))
        r->begun = r->page->begun;
    else if (earlier && !r->store.found)
        e = registered_begin(r); /* what a worker that kept no such file let through is not known */
    if (r->begun)
        take_over(r, &t->objects);
    if (e < 0) {
        registered_close(r);
        return e;
    }
    t->registered = r;
    return 0;
}

void registered_close(struct registered *r)
{
    if (!r)
        return;
    store_close(&r->store);
    free(r);
}

void registered_remove(struct registered *r)
{
    if (r)
        store_remove(&r->store);
}

void registered_recover(const struct mediator *m, struct tenant *t)
{
    struct registered *r = t->registered;
    const struct objects *o = &t->objects;
    struct open_file file;

    if (!r->begun)
        return;
    for (struct retained *what = first(r); what < end(r); what++) {
        what->held_bytes = what->check ? what->bytes : 0;
        if (what->file && (!files_by_id(m->files, what->file, &file) || file.tenant != t))
            what->file = 0;
    }
    for (uint32_t i = objects_next(o, 0, 0); i; i = objects_next(o, 0, i))
        if (o->slot[i].class_id == KEPLER_CHANNEL_GROUP_A && o->slot[i].memory)
            for (struct retained *what = first(r); what < end(r); what++)
                if (what->group == o->slot[i].memory)
                    what->held_bytes = 0;
    for (struct retained *what = first(r); what < end(r); what++) {
        if (!what->held_bytes)
            continue;
        for (struct retained *other = what + 1; other < end(r); other++)
            if (other->group == what->group)
                other->held_bytes = 0;
        what->held_bytes = what->bytes;
        r->ledger[what->card].used_bytes += what->bytes;
    }
}
