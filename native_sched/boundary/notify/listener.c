#define _GNU_SOURCE
#include "listener.h"
#include "mediate.h"
#include "native_sched/boundary/call/page.h"
#include "native_sched/boundary/call/close_wait.h"
#include "base/clock.h"
#include "native_sched/boundary/continued/continued.h"
#include "native_sched/boundary/managed/managed.h"
#include "native_sched/process/privileges.h"
#include <errno.h>
#include <linux/audit.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1UL
#endif

enum { X32_SYSCALL_BIT = 0x40000000, X32_IOCTL = X32_SYSCALL_BIT + 514, I386_IOCTL = 54 };
enum { INTERRUPT_SIGNAL = SIGURG, STACK_BYTES = 512 << 10, LISTENER_NICE = 2 };

/* An entry's demand; NULL: none. The ledger's card can be another one meanwhile. */
struct demand {
    struct ledger *ledger;
    struct card_memory *card;
    uint64_t bytes;
};

struct server {
    struct listener *l;
    struct caller caller;
    struct listener_page *page;
    struct call call;
    uint8_t before[OUTER_MAX];
    struct demand demand[PARKED_MAX];
    uint64_t look_at_ns; /* when the parked calls are served anew */
};

static bool foreign_abi(const struct seccomp_data *d)
{
#if defined(__x86_64__)
    return d->arch != AUDIT_ARCH_X86_64 || (d->nr & X32_SYSCALL_BIT) ||
           (d->nr != SYS_ioctl && d->nr != SYS_mmap);
#else
#error "mgpu knows the system call numbers of x86-64 only"
#endif
}

/* A command that the filter has caught beside the watched ones. It is in a register, which the kernel keeps
 * for the length of the call: what goes on is what was seen, on whatever file. */
static bool is_others(const struct seccomp_data *d)
{
    bool is_ioctl = d->arch == AUDIT_ARCH_I386 ? d->nr == I386_IOCTL
                                               : d->nr == SYS_ioctl || d->nr == X32_IOCTL;

    return is_ioctl && !rm_is_watched((uint32_t)d->args[1]);
}

static int write_back(struct server *s)
{
    struct call *c = &s->call;
    bool same = !memcmp(s->before, c->outer, c->outer_bytes);

    s->page->inflight.written = true;
    return caller_write_both(&s->caller, c->outer_at, c->outer, same ? 0 : c->outer_bytes, c->params_at,
                             c->params, c->params_out ? c->params_bytes : 0);
}

static int decode(struct server *s)
{
    const struct seccomp_data *d = &s->page->inflight.req.data;
    struct call *c = &s->call;

    c->cmd = (uint32_t)d->args[1];
    c->outer_at = d->args[2];
    c->params_out = c->passed = false;
    c->again = 0;
    c->params_check = c->params_check_after = 0;
    c->params_bytes = 0;
    c->guessed_bytes = 0;
    return call_find_row(c);
}

static int audit_all(struct call *c)
{
    int e = audit_passed(c->tenant) ? 0 : audit(c);

    return e < 0 || managed_reconciled(c->tenant) ? e : managed_reconcile(c);
}

/* What changed is written into the caller's memory. */
static struct answer serve(struct server *s)
{
    struct call *c = &s->call;
    const struct seccomp_notif *req = &s->page->inflight.req;
    const struct seccomp_data *d = &req->data;
    struct answer a;
    int e;

    if (foreign_abi(d))
        return is_others(d) ? continued() : failed(-EPERM);
    c->waits_since_ms = 0;
    if (d->nr == SYS_mmap)
        return managed_mmap(c, d);
    if ((e = decode(s)) < 0)
        return is_others(d) ? continued() : failed(e);
    if (c->row->disposition == RM_PASSED && (!c->m->ops->as_caller || is_others(d)))
        return continued();
    if ((e = close_wait_identify(c, (int)d->args[0], &c->file)) < 0)
        return failed(e);
    if ((e = audit_all(c)) < 0)
        return failed(e);
    if (!inflight_restore(&s->page->inflight, c) && c->outer_bytes &&
        (e = caller_read_outer(&s->caller, c->outer_at, c->outer, c->outer_bytes, c->params, PARAMS_MAX,
                               &c->guessed_at, &c->guessed_bytes)) < 0)
        return failed(e);
    call_find_params_row(c);
    memcpy(s->before, c->outer, c->outer_bytes);
    if (call_changes(c))
        inflight_read(c, s->before);
    a = replay_find(&s->page->replay, req, c) ? answered(NV_OK) : mediate(c);
    /* Another listener of the tenant may have let a call through meanwhile. */
    if (a.kind == ANSWER && !c->passed && (e = audit_all(c)) < 0)
        return failed(e);
    if (a.kind != ANSWER)
        return a;
    inflight_done(c);
    if (!caller_waits(&s->caller)) {
        if (call_changes(c))
            replay_keep(&s->page->replay, req, c, s->before, false, false);
        return failed(-EINTR);
    }
    return (e = write_back(s)) < 0 ? failed(e) : a;
}

static void send_answer(struct server *s, struct answer a)
{
    const struct seccomp_notif *req = &s->page->inflight.req;
    struct seccomp_notif_resp resp = {
        .id = req->id,
        .error = a.kind == FAIL ? a.error : 0,
        .flags = a.kind == CONTINUE ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0,
    };

    bool accepted = ioctl(s->l->fd, SECCOMP_IOCTL_NOTIF_SEND, &resp) == 0;

    if (a.kind == CONTINUE && !audit_passed(s->call.tenant))
        continued_sent(&s->call, accepted);
    if (a.kind == ANSWER && (accepted || errno == ENOENT) && call_changes(&s->call))
        replay_keep(&s->page->replay, req, &s->call, s->before, true, accepted);
}

/* The page no longer speaks of a call, before it can speak of another. */
static struct seccomp_notif *next_call(struct inflight *k)
{
    __atomic_store_n(&k->stage, INFLIGHT_NONE, __ATOMIC_RELEASE);
    memset(&k->req, 0, sizeof(k->req));
    return &k->req;
}

static void demand(struct server *s, const struct parked_call *entry, struct ledger *ledger, uint64_t bytes)
{
    struct demand *d = &s->demand[entry - s->page->parked.call], was = *d;

    if (was.ledger == ledger && was.bytes == bytes)
        return;
    {
        WITH_TENANT(s->call.tenant);
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
    eventfd_write(s->call.m->events, 1);
}

static void park(struct server *s, struct parked_call *entry)
{
    parked_keep(entry, &s->page->inflight.req, &s->call);
    demand(s, entry, s->call.lacks_on, s->call.lacks_bytes);
    next_call(&s->page->inflight);
}

static void unpark(struct server *s, struct parked_call *entry)
{
    parked_drop(entry);
    demand(s, entry, NULL, 0);
}

static void serve_and_answer(struct server *s)
{
    const struct mediator *m = s->call.m;
    struct parked_call *entry = m->evict_wait_ms ? parked_entry(&s->page->parked, &s->page->inflight.req)
                                                 : NULL;
    struct answer a;

    s->call.may_park = entry && parked_has_time(m, entry);
    s->call.lent_ns = entry && entry->req.id ? entry->lent_ns : 0;
    a = serve(s);
    if (a.kind == PARK) {
        park(s, entry);
        return;
    }
    if (entry && entry->req.id)
        unpark(s, entry);
    if (a.kind == FAIL)
        stats_failed(&s->l->tenant->stats, a.error);
    send_answer(s, a);
}

/* Whether a MAP_MEMORY has put its mapping in the place of the caller's fd already. */
static bool not_replaced(struct server *s)
{
    const struct call *c = &s->call;
    struct open_file target;

    return RM_NR(c->cmd) == NV_ESC_RM_MAP_MEMORY &&
           c->m->ops->identify(c->m->driver, &s->caller, c->tenant,
                               ((const struct rm_map_memory *)(const void *)c->outer)->fd, &target) == 0;
}

static void keep_begun(struct server *s)
{
    const struct inflight *k = &s->page->inflight;

    if (!k->begun)
        return;
    s->call.file.id = k->file;
    replay_keep_begun(&s->page->replay, &k->req, &s->call, k->before, k->begun);
}

static void take_result(struct server *s)
{
    memcpy(s->before, s->page->inflight.before, sizeof(s->page->inflight.before));
    inflight_result(&s->page->inflight, &s->call);
    call_find_params_row(&s->call);
}

static void keep_result(struct server *s)
{
    const struct inflight *k = &s->page->inflight;

    take_result(s);
    if (call_changes(&s->call))
        replay_keep(&s->page->replay, &k->req, &s->call, s->before, k->written, k->written);
}

static void send_result(struct server *s)
{
    take_result(s);
    if (not_replaced(s)) {
        s->page->inflight.stage = INFLIGHT_NONE;
        serve_and_answer(s);
    } else {
        send_answer(s, answer_of(write_back(s)));
    }
}

/* What the previous mgpud left between its RECV and its SEND, or right after that. */
static void answer_inflight(struct server *s)
{
    /* By whether the caller waits; NULL: nothing is left to be done. */
    static void (*const next[][2])(struct server *) = {
        [INFLIGHT_NONE] = {NULL, serve_and_answer},
        [INFLIGHT_READ] = {keep_begun, serve_and_answer},
        [INFLIGHT_INTENDED] = {NULL, serve_and_answer},
        [INFLIGHT_DONE] = {keep_result, send_result},
    };
    const struct inflight *k = &s->page->inflight;
    bool waits = caller_waits(&s->caller), kept;
    void (*act)(struct server *);

    if (!k->req.id)
        return;
    kept = decode(s) == 0 && s->call.outer_bytes <= KEPT_OUTER_MAX && k->stage <= INFLIGHT_DONE;
    if ((act = next[kept ? k->stage : INFLIGHT_NONE][waits]))
        act(s);
}

static void serve_parked(struct server *s)
{
    for (int i = 0; i < PARKED_MAX; i++) {
        struct parked_call *entry = &s->page->parked.call[i];

        if (!entry->req.id)
            continue;
        parked_take(entry, next_call(&s->page->inflight));
        if (caller_waits(&s->caller))
            serve_and_answer(s);
        else
            unpark(s, entry);
    }
    next_call(&s->page->inflight);
}

/* Whether a notification is to be received, while calls are parked: these are served anew between others. */
static bool is_notified(struct server *s)
{
    struct pollfd p = {.fd = s->l->fd, .events = POLLIN};
    uint64_t now;

    if (!parked_any(&s->page->parked))
        return true;
    now = monotonic_ns();
    if (now >= s->look_at_ns) {
        serve_parked(s);
        s->look_at_ns = now + PARKED_LOOK_MS * 1000000ull;
    }
    return !parked_any(&s->page->parked) || poll(&p, 1, PARKED_LOOK_MS) != 0;
}

/* The next mgpud finds the calls in the page. */
static void end_demands(struct server *s)
{
    for (int i = 0; i < PARKED_MAX; i++)
        demand(s, &s->page->parked.call[i], NULL, 0);
}

static void on_interrupt(int signal)
{
    (void)signal;
}

static void *run(void *arg)
{
    struct listener *l = arg;
    struct server *s = calloc(1, sizeof(*s));

    if (!s)
        abort();
    drop_thread_privileges();
    /* Below the scheduler, also where that may not be a real-time thread. Another listener's are its equals.
     */
    (void)setpriority(PRIO_PROCESS, 0, LISTENER_NICE);
    s->l = l;
    s->page = (struct listener_page *)(void *)l->store.at;
    s->call.m = l->m;
    s->call.tenant = l->tenant;
    s->call.caller = &s->caller;
    s->call.inflight = &s->page->inflight;
    s->call.over = &l->hung_up;
    caller_init(&s->caller, l->fd, &s->page->inflight.req);
    if (l->store.found)
        answer_inflight(s);
    while (!atomic_load(&l->hung_up)) {
        if (!is_notified(s))
            continue;
        if (ioctl(l->fd, SECCOMP_IOCTL_NOTIF_RECV, next_call(&s->page->inflight)) < 0) {
            if (errno != EINTR && errno != ENOENT)
                break;
            /* ENOENT: the caller was killed between the wake-up and the read, or no process is left */
            struct pollfd p = {.fd = l->fd};
            if (errno == ENOENT && poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
                break;
            continue;
        }
        stats_step(&l->stats);
        serve_and_answer(s);
        stats_step(&l->stats);
    }
    end_demands(s);
    caller_destroy(&s->caller);
    free(s);
    atomic_store(&l->done, true);
    eventfd_write(l->ended, 1);
    return NULL;
}

int listener_start(struct listener *l)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    pthread_attr_t attr;
    int e;

    /* Answers run the caller at once on the same CPU: 5 us a round trip instead of 45. Linux before 6.6 lacks
     * it and works all the same. */
    ioctl(l->fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    sigemptyset(&sa.sa_mask);
    sigaction(INTERRUPT_SIGNAL, &sa, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    e = pthread_create(&l->thread, &attr, run, l);
    pthread_attr_destroy(&attr);
    return -e;
}

void listener_interrupt(struct listener *l)
{
    atomic_store(&l->hung_up, true);
    pthread_kill(l->thread, INTERRUPT_SIGNAL);
}
