#define _GNU_SOURCE
#include "listener.h"
#include "caught.h"
#include "ending.h"
#include "let_through.h"
#include "managed.h"
#include "privileges.h"
#include "registered.h"
#include <errno.h>
#include <linux/audit.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1UL
#endif

enum { X32_SYSCALL_BIT = 0x40000000, INTERRUPT_SIGNAL = SIGURG, STACK_BYTES = 512 << 10 };

struct server {
    struct listener *l;
    struct caller caller;
    struct listener_page *page;
    struct call call;
    uint8_t before[OUTER_MAX];
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

/* Calls for the caller's own thread that are what they are by their number, whatever becomes of their arguments: it
 * maps and unmaps what its own client has. */
static bool safe_by_number(uint32_t cmd)
{
    return RM_NR(cmd) == NV_ESC_RM_MAP_MEMORY || RM_NR(cmd) == NV_ESC_RM_UNMAP_MEMORY;
}

static int write_back(struct server *s)
{
    struct call *c = &s->call;
    bool same = !memcmp(s->before, c->outer, c->outer_bytes);

    s->page->caught.written = true;
    return caller_write_both(&s->caller, c->outer_at, c->outer, same ? 0 : c->outer_bytes, c->params_at,
                             c->params, c->params_out ? c->params_bytes : 0);
}

static void take_up(struct server *s)
{
    const struct seccomp_data *d = &s->page->caught.req.data;
    struct call *c = &s->call;

    c->cmd = (uint32_t)d->args[1];
    c->outer_at = d->args[2];
    c->params_out = c->passed = false;
    c->again = false;
    c->said = c->said_after = 0;
    c->params_bytes = 0;
    c->guessed_bytes = 0;
}

static int settle_all(struct call *c)
{
    int e = settled(c->tenant) ? 0 : settle(c);

    return e < 0 || managed_settled(c->tenant) ? e : managed_settle(c);
}

/* 0, or the errno the caller's ioctl() fails with; what changed is written into its memory. */
static int serve(struct server *s)
{
    struct call *c = &s->call;
    const struct seccomp_notif *req = &s->page->caught.req;
    const struct seccomp_data *d = &req->data;
    int bytes, e;

    if (foreign_abi(d))
        return -EPERM;
    c->waits_since_ms = 0;
    if (d->nr == SYS_mmap)
        return managed_mmap(c, d);
    take_up(s);
    if ((bytes = mediate_outer_bytes(c->m, c->cmd)) < 0)
        return bytes;
    if (mediate_passes(c->m, c->cmd) && !c->m->ops->as_caller) {
        c->passed = true;
        return -EINPROGRESS;
    }
    c->outer_bytes = (uint32_t)bytes;
    if ((e = ending_identify(c, (int)d->args[0], &c->file)) < 0)
        return e;
    if (!registered_settled(c->tenant))
        registered_settle(c);
    if ((e = settle_all(c)) < 0)
        return e;
    if (!caught_again(&s->page->caught, c) &&
        (e = caller_read_outer(&s->caller, c->outer_at, c->outer, c->outer_bytes, c->params, PARAMS_MAX,
                               &c->guessed_at, &c->guessed_bytes)) < 0)
        return e;
    memcpy(s->before, c->outer, c->outer_bytes);
    if (call_changes(c))
        caught_read(c, s->before);
    if (!replay_find(&s->page->replay, req, c, &e))
        e = mediate(c);
    if (e == -EINPROGRESS)
        return c->passed || safe_by_number(c->cmd) ? e : -EPERM;
    /* Another listener of the tenant may have let a call through meanwhile. */
    if (e == 0 && !c->passed)
        e = settle_all(c);
    if (e < 0)
        return e;
    caught_done(c, e);
    if (!caller_waits(&s->caller)) {
        replay_keep(&s->page->replay, req, c, s->before, e, false, false);
        return -EINTR;
    }
    return write_back(s);
}

static void answer(struct server *s, int result)
{
    bool continues = result == -EINPROGRESS;
    const struct seccomp_notif *req = &s->page->caught.req;
    struct seccomp_notif_resp resp = {
        .id = req->id,
        .error = result < 0 && !continues ? result : 0,
        .flags = continues ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0,
    };

    bool accepted = ioctl(s->l->fd, SECCOMP_IOCTL_NOTIF_SEND, &resp) == 0;

    if (continues && !accepted)
        initialize_withdrawn(&s->call);
    if (result >= 0 && (accepted || errno == ENOENT))
        replay_keep(&s->page->replay, req, &s->call, s->before, result, true, accepted);
}

/* The page no longer speaks of a call, before it can speak of another. */
static struct seccomp_notif *next_call(struct caught *k)
{
    __atomic_store_n(&k->stage, CAUGHT_NOTHING, __ATOMIC_RELEASE);
    memset(&k->req, 0, sizeof(k->req));
    return &k->req;
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

/* An earlier worker ended between its RECV and its SEND, or right after that. */
static void answer_caught(struct server *s)
{
    struct caught *k = &s->page->caught;
    struct call *c = &s->call;
    bool waits = caller_waits(&s->caller);

    if (!k->req.id)
        return;
    if (waits)
        initialize_withdrawn(c);
    if (k->stage != CAUGHT_DONE ||
        mediate_outer_bytes(c->m, (uint32_t)k->req.data.args[1]) > REPLAY_OUTER_MAX) {
        if (waits)
            answer(s, stats_result(&s->l->tenant->stats, serve(s)));
        return;
    }
    take_up(s);
    c->outer_bytes = (uint32_t)mediate_outer_bytes(c->m, c->cmd);
    memcpy(s->before, k->before, sizeof(k->before));
    caught_result(k, c);
    if (!waits) {
        replay_keep(&s->page->replay, &k->req, c, s->before, k->result, k->written, k->written);
    } else if (not_replaced(s)) {
        k->stage = CAUGHT_NOTHING;
        answer(s, stats_result(&s->l->tenant->stats, serve(s)));
    } else {
        answer(s, k->result < 0 ? k->result : write_back(s));
    }
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
    s->l = l;
    s->page = (struct listener_page *)(void *)l->store.at;
    s->call.m = l->m;
    s->call.tenant = l->tenant;
    s->call.caller = &s->caller;
    s->call.caught = &s->page->caught;
    s->call.over = &l->hung_up;
    caller_init(&s->caller, l->fd, &s->page->caught.req);
    if (l->store.found)
        answer_caught(s);
    while (!atomic_load(&l->hung_up)) {
        if (ioctl(l->fd, SECCOMP_IOCTL_NOTIF_RECV, next_call(&s->page->caught)) < 0) {
            if (errno != EINTR && errno != ENOENT)
                break;
            /* ENOENT: the caller was killed between the wake-up and the read, or nobody is left at all */
            struct pollfd p = {.fd = l->fd};
            if (errno == ENOENT && poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
                break;
            continue;
        }
        stats_step(&l->stats);
        answer(s, stats_result(&l->tenant->stats, serve(s)));
        stats_step(&l->stats);
    }
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
