#include "initialize.h"
#include "managed.h"
#include "registered.h"
#include <errno.h>
#include <signal.h>

/* What UVM says on it of a range that none can be: INVALID_ADDRESS where the file is initialised, and ILLEGAL_ACTION where it is
 * not. It takes no lock for that. A negative errno. */
static int64_t state_of(const struct mediator *m, const struct open_file *file)
{
    struct uvm_unmap_external unmap = {.range = {0, 0}};
    int e = mediator_call(m, file, NULL, UVM_UNMAP_EXTERNAL, &unmap, sizeof(unmap));

    return e < 0 ? e : (int64_t)unmap.status;
}

static bool is_initialized(const struct mediator *m, const struct initializing *call)
{
    struct open_file file;

    if (call->ended || !files_by_id(m->files, call->file, &file))
        return false;
    return file.initialized || state_of(m, &file) == NV_ERR_INVALID_ADDRESS;
}

/* It is there, and cannot be asked any more: a call that has ended may have initialised it. */
static bool may_be_initialized(const struct mediator *m, const struct initializing *call)
{
    struct open_file file;
    int64_t state = files_by_id(m->files, call->file, &file) ? state_of(m, &file) : -EBADF;

    return state < 0 && state != -EBADF;
}

/* One that ends in between leaves a call astray too many, and none too few. */
static void end(struct initialize_calls *calls, struct initializing *call, bool initialized)
{
    if (!initialized)
        __atomic_store_n(&calls->astray, calls->astray + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&call->thread, 0, __ATOMIC_RELEASE);
}

bool initialize_look(const struct mediator *m, struct initialize_calls *calls, pid_t caller)
{
    bool initialized[INITIALIZING_MAX], all = true, running = false;

    for (int i = 0; i < INITIALIZING_MAX; i++) {
        initialized[i] = !calls->call[i].thread || is_initialized(m, &calls->call[i]);
        all &= initialized[i];
    }
    /* As many files as there were calls: none is left that could initialise another. */
    for (struct initializing *call = calls->call; call < calls->call + INITIALIZING_MAX; call++) {
        if (!call->thread)
            continue;
        if (all || call->thread == caller || (kill(call->thread, 0) < 0 && errno == ESRCH)) {
            if (initialized[call - calls->call] || may_be_initialized(m, call))
                files_note_initialized(m->files, call->file);
            end(calls, call, initialized[call - calls->call]);
        } else {
            running = true;
        }
    }
    return running;
}

void initialize_file_gone(struct initialize_calls *calls, const struct open_file *file)
{
    for (struct initializing *call = calls->call; call < calls->call + INITIALIZING_MAX; call++)
        if (call->thread && call->file == file->id) {
            if (file->initialized)
                end(calls, call, true);
            else
                call->ended = true;
        }
}

bool initialize_runs(const struct initialize_calls *calls)
{
    for (int i = 0; i < INITIALIZING_MAX; i++)
        if (calls->call[i].thread)
            return true;
    return false;
}

bool initialize_unsure(const struct initialize_calls *calls)
{
    return calls->astray || initialize_runs(calls);
}

bool initialize_matters(const struct initialize_calls *calls, const struct open_file *file)
{
    for (int i = 0; i < INITIALIZING_MAX; i++)
        if (calls->call[i].thread && calls->call[i].file == file->id)
            return true;
    return file->initialized;
}

/* What came of it, or would have. */
static int say(struct call *c, uint32_t status)
{
    struct uvm_initialize *said = (void *)c->params;

    stats_refused(&c->tenant->stats, status);
    said->status = status;
    c->params_out = true;
    return 0;
}

static struct initializing *free_call(struct initialize_calls *calls)
{
    for (struct initializing *call = calls->call; call < calls->call + INITIALIZING_MAX; call++)
        if (!call->thread)
            return call;
    return NULL;
}

static bool under_way_on(const struct initialize_calls *calls, uint64_t file)
{
    for (int i = 0; i < INITIALIZING_MAX; i++)
        if (calls->call[i].thread && calls->call[i].file == file)
            return true;
    return false;
}

/* The driver looks at the flags alone, which are as we have had them put (managed.h), and nothing comes of it. */
static int once_more(struct call *c)
{
    struct uvm_initialize *said = (void *)c->params;
    uint64_t flags = said->flags;
    int e;

    said->flags |= UVM_INIT_DISABLE_HMM;
    e = mediator_call(c->m, &c->file, NULL, UVM_INITIALIZE, c->params, c->params_bytes);
    said->flags = flags;
    c->params_out = e == 0;
    return e;
}

static int let_through_on(struct call *c, struct registered *r)
{
    struct initialize_calls *calls = &r->page->initialize;
    struct initializing *call = free_call(calls);
    int e;

    if (under_way_on(calls, c->file.id))
        return say(c, NV_ERR_BUSY_RETRY);
    if (!call)
        return say(c, NV_ERR_NO_MEMORY);
    if ((e = managed_initializes(c, ((const struct uvm_initialize *)(const void *)c->params)->flags)))
        return e < 0 ? e : say(c, (uint32_t)e);
    call->file = c->file.id;
    call->notification = c->caller->req->id;
    call->ended = false;
    __atomic_store_n(&call->thread, (pid_t)c->caller->req->pid, __ATOMIC_RELEASE);
    atomic_store_explicit(&r->due, true, memory_order_release);
    c->passed = true;
    return -EINPROGRESS;
}

int initialize(struct call *c)
{
    struct registered *r = c->tenant->registered;
    int64_t state;
    int e;
    WITH_CALLS_OF(c->tenant);

    c->params_at = c->outer_at;
    c->params_bytes = sizeof(struct uvm_initialize);
    if ((e = caller_read(c->caller, c->params_at, c->params, c->params_bytes)) < 0)
        return e;
    if (!caller_waits(c->caller))
        return -EINTR;
    if (registered_begin(r) < 0)
        return say(c, NV_ERR_NO_MEMORY);
    if ((state = state_of(c->m, &c->file)) < 0)
        return (int)state;
    if (state == NV_ERR_INVALID_ADDRESS)
        return once_more(c);
    return state == NV_ERR_ILLEGAL_ACTION ? let_through_on(c, r) : say(c, (uint32_t)state);
}

void initialize_withdrawn(struct call *c)
{
    struct registered *r = c->tenant->registered;
    WITH_CALLS_OF(c->tenant);

    if (!r || !r->begun)
        return;
    for (int i = 0; i < INITIALIZING_MAX; i++) {
        struct initializing *call = &r->page->initialize.call[i];

        if (call->thread == (pid_t)c->caller->req->pid && call->notification == c->caller->req->id)
            __atomic_store_n(&call->thread, 0, __ATOMIC_RELEASE);
    }
}
