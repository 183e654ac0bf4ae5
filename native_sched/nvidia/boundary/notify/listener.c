#define _GNU_SOURCE
#include "listener.h"
#include "mediate.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/page.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
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

struct server {
    struct listener *l;
    struct listener_page *page;
    struct caller caller;
    struct call call;
    struct answer answer;
    struct parking parking;
    struct parked_call *entry; /* the call's, or a free one; NULL: it cannot be parked */
    bool replayed;             /* the call has its answer from before */
    uint8_t before[OUTER_MAX]; /* the outer struct as it was read */
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

/* A command that is notified only because the filter's list is broad. Its number is in a register, which the
 * kernel keeps for the length of the call: the command that is continued is the one that was seen. */
static bool is_unwatched(const struct seccomp_data *d)
{
    bool is_ioctl = d->arch == AUDIT_ARCH_I386 ? d->nr == I386_IOCTL
                                               : d->nr == SYS_ioctl || d->nr == X32_IOCTL;

    return is_ioctl && !rm_is_watched((uint32_t)d->args[1]);
}

/* Whether the next stage has something to do: an answer is to be recorded, anything else is sent at once. */
static bool decided(struct server *s, struct answer a)
{
    s->answer = a;
    return a.kind == ANSWER;
}

/* The call as its registers have it. */
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

static bool identify(struct server *s)
{
    const struct seccomp_data *d = &s->page->inflight.req.data;
    struct call *c = &s->call;
    int e;

    c->waits_since_ms = 0;
    if (foreign_abi(d))
        return decided(s, is_unwatched(d) ? continued() : failed(-EPERM));
    if (d->nr == SYS_mmap)
        return decided(s, managed_mmap(c, d));
    if ((e = decode(s)) < 0)
        return decided(s, is_unwatched(d) ? continued() : failed(e));
    if (c->row->disposition == RM_PASSED && (!c->m->ops->as_caller || is_unwatched(d)))
        return decided(s, continued());
    e = close_wait_identify(c, (int)d->args[0], &c->file);
    return e == 0 || decided(s, failed(e));
}

static int audit_all(struct call *c)
{
    int e = audit_passed(c->tenant) ? 0 : audit(c);

    return e < 0 || managed_reconciled(c->tenant) ? e : managed_reconcile(c);
}

/* What the tenant's calls have done that their callers made themselves. */
static bool account(struct server *s)
{
    int e = audit_all(&s->call);

    return e == 0 || decided(s, failed(e));
}

/* Reads the arguments, or has them from the previous mgpud, and the answer where there is one already. */
static bool recall(struct server *s)
{
    struct call *c = &s->call;
    struct inflight *k = &s->page->inflight;
    int e = inflight_restore(k, c) || !c->outer_bytes
                ? 0
                : caller_read_outer(&s->caller, c->outer_at, c->outer, c->outer_bytes, c->params, PARAMS_MAX,
                                    &c->guessed_at, &c->guessed_bytes);

    if (e < 0)
        return decided(s, failed(e));
    call_find_params_row(c);
    memcpy(s->before, c->outer, c->outer_bytes);
    if (call_changes(c))
        inflight_read(c, s->before);
    s->replayed = replay_find(&s->page->replay, &k->req, c);
    return true;
}

static bool decide(struct server *s)
{
    return decided(s, s->replayed ? answered(NV_OK) : mediate(&s->call));
}

/* What came of it, before the caller can learn of it. */
static bool record(struct server *s)
{
    struct call *c = &s->call;
    /* Another listener of the tenant may have let a call through meanwhile. */
    int e = c->passed ? 0 : audit_all(c);

    if (e < 0)
        return decided(s, failed(e));
    inflight_done(c);
    if (caller_waits(&s->caller))
        return true;
    if (call_changes(c))
        replay_keep(&s->page->replay, &s->page->inflight.req, c, s->before, false, false);
    return decided(s, failed(-EINTR));
}

/* What changed goes into the caller's memory. */
static int write_back(struct server *s)
{
    struct call *c = &s->call;
    bool same = !memcmp(s->before, c->outer, c->outer_bytes);

    s->page->inflight.written = true;
    return caller_write_both(&s->caller, c->outer_at, c->outer, same ? 0 : c->outer_bytes, c->params_at,
                             c->params, c->params_out ? c->params_bytes : 0);
}

static void send_answer(struct server *s)
{
    const struct seccomp_notif *req = &s->page->inflight.req;
    const struct answer *a = &s->answer;
    struct seccomp_notif_resp resp = {
        .id = req->id,
        .error = a->kind == FAIL ? a->error : 0,
        .flags = a->kind == CONTINUE ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0,
    };
    bool continues = a->kind == CONTINUE && !audit_passed(s->call.tenant), accepted;

    if (continues)
        continued_send(&s->call);
    accepted = ioctl(s->l->fd, SECCOMP_IOCTL_NOTIF_SEND, &resp) == 0;
    if (continues)
        continued_sent(&s->call, accepted);
    if (a->kind == ANSWER && (accepted || errno == ENOENT) && call_changes(&s->call))
        replay_keep(&s->page->replay, req, &s->call, s->before, true, accepted);
}

static bool answer(struct server *s)
{
    int e = s->answer.kind == ANSWER ? write_back(s) : 0;

    if (e < 0)
        s->answer = failed(e);
    if (s->answer.kind == PARK) {
        parked_keep(&s->parking, s->entry, &s->page->inflight.req, &s->call);
        inflight_next(&s->page->inflight);
        return false;
    }
    if (s->entry && s->entry->req.id)
        parked_answer(&s->parking, s->entry, &s->call);
    if (s->answer.kind == FAIL)
        stats_failed(&s->call.tenant->stats, s->answer.error);
    send_answer(s);
    return true;
}

/* A call's way. Each says whether it is for the next; the last is for all. */
static bool (*const stages[])(struct server *s) = {identify, account, recall, decide, record, answer};

static void serve(struct server *s)
{
    enum { LAST = sizeof(stages) / sizeof(*stages) - 1 };
    int i = 0;

    s->entry = parked_enter(&s->parking, &s->page->inflight.req, &s->call);
    while (i < LAST && stages[i](s))
        i++;
    stages[LAST](s);
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

/* Its answer is there. */
static void take_result(struct server *s, bool waits)
{
    const struct inflight *k = &s->page->inflight;

    memcpy(s->before, k->before, sizeof(k->before));
    inflight_result(k, &s->call);
    call_find_params_row(&s->call);
    if (waits && not_replaced(s)) {
        s->page->inflight.stage = INFLIGHT_NONE;
        serve(s);
    } else if (waits) {
        s->answer = answered(NV_OK);
        answer(s);
    } else if (call_changes(&s->call)) {
        replay_keep(&s->page->replay, &k->req, &s->call, s->before, k->written, k->written);
    }
}

static void take_over(struct server *s)
{
    const struct inflight *k = &s->page->inflight;
    bool waits = caller_waits(&s->caller), kept;

    if (!k->req.id)
        return;
    kept = decode(s) == 0 && s->call.outer_bytes <= KEPT_OUTER_MAX;
    if (kept && k->stage == INFLIGHT_DONE) {
        take_result(s, waits);
    } else if (waits) {
        serve(s);
    } else if (kept && k->stage == INFLIGHT_READ && k->begun) {
        s->call.file.id = k->file;
        replay_keep_begun(&s->page->replay, &k->req, &s->call, k->before, k->begun);
    }
}

static void serve_parked(struct server *s)
{
    struct inflight *k = &s->page->inflight;

    for (struct parked_call *p = s->page->parked.call; p < s->page->parked.call + PARKED_MAX; p++) {
        if (!p->req.id)
            continue;
        parked_take(p, inflight_next(k));
        if (caller_waits(&s->caller))
            serve(s);
        else
            parked_drop(&s->parking, p, &s->call);
    }
    inflight_next(k);
}

/* Whether a notification is to be received, while calls are parked: these are served anew between others. */
static bool is_notified(struct server *s)
{
    struct pollfd p = {.fd = s->l->fd, .events = POLLIN};

    if (parked_due(&s->parking))
        serve_parked(s);
    return !parked_any(&s->page->parked) || poll(&p, 1, PARKED_LOOK_MS) != 0;
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
    s->parking.calls = &s->page->parked;
    s->call.m = l->m;
    s->call.tenant = l->tenant;
    s->call.caller = &s->caller;
    s->call.inflight = &s->page->inflight;
    s->call.over = &l->hung_up;
    caller_init(&s->caller, l->fd, &s->page->inflight.req);
    if (l->store.found)
        take_over(s);
    while (!atomic_load(&l->hung_up)) {
        if (!is_notified(s))
            continue;
        if (ioctl(l->fd, SECCOMP_IOCTL_NOTIF_RECV, inflight_next(&s->page->inflight)) < 0) {
            if (errno != EINTR && errno != ENOENT)
                break;
            /* ENOENT: the caller was killed between the wake-up and the read, or no process is left */
            struct pollfd p = {.fd = l->fd};
            if (errno == ENOENT && poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
                break;
            continue;
        }
        stats_step(&l->stats);
        serve(s);
        stats_step(&l->stats);
    }
    parked_end(&s->parking, &s->call);
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
