/* mgpu-holder: owns seccomp.sock and keeps every container's seccomp listener, so that the arbiter can end
 * and start again while containers run: a listener whose last copy is closed makes their calls fail for good.
 * It knows nothing of GPUs and holds no driver file. */
#define _GNU_SOURCE
#if __has_include("build.h") /* meson makes it */
#include "build.h"
#endif
#include "child.h"
#include "events.h"
#include "manager.h"
#include "mgpud.h"
#include "replace.h"
#include "runtimes.h"
#include "sockets.h"
#include "spawn.h"
#include "standby.h"
#include "store.h"
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 1000, WATCHDOG_MS = 10000, GOES_ON = -1 };

enum { RUNTIMES, MGPUDS, SOCKETS };

static struct own own;
static struct own_socket sockets[SOCKETS] = {
    [RUNTIMES] = {.type = SOCK_STREAM, .fd = &own.runtimes_fd, .source = FROM_RUNTIMES},
    [MGPUDS] = {.type = SOCK_SEQPACKET, .fd = &own.mgpuds_fd, .source = FROM_MGPUDS},
};
static int signals_fd;

/* Drops the listeners whose containers have ended; returns the ms to the next poll. It polls because a waiter
 * would be woken by every notification, and every mediated call would pay for that. */
static int64_t drop_hung_up(int64_t now)
{
    static int64_t due_ms;

    if (!held_count())
        return -1;
    if (now < due_ms)
        return due_ms - now;
    due_ms = now + POLL_MS;
    for (struct held *h = held; h < held + HELD_MAX; h++) {
        struct pollfd p = {.fd = h->fd};

        if (h->id && poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
            store_drop(h);
    }
    return POLL_MS;
}

/* What is due by time; returns the ms until it is due again, -1 for never. */
static int64_t housekeeping(void)
{
    int64_t now = now_ms(), next = drop_hung_up(now);

    next = sooner(next, sockets_poll(sockets, SOCKETS, now));
    next = sooner(next, runtimes_poll(now));
    next = sooner(next, mgpuds_poll(now));
    next = sooner(next, store_poll(now));
    next = sooner(next, children_poll(now));
    return sooner(next, replace_poll(now));
}

/* A listener for each container and exec: more than the usual soft limit. */
static void allow_many_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void tell_ready(void)
{
    if (!own.told_ready) {
        puts("ready");
        fflush(stdout);
        (void)manager_tell("READY=1", NULL, 0); /* It waits, and says so, if it does not come. */
    }
    own.told_ready = true;
}

static void mgpud_ready(pid_t pid)
{
    child_ready(pid);
    tell_ready();
}

/* GOES_ON, or what to exit with. */
static int take_signal(void)
{
    struct signalfd_siginfo got;

    if (read(signals_fd, &got, sizeof(got)) != sizeof(got))
        return GOES_ON;
    if (got.ssi_signo == SIGUSR1)
        child_renew();
    else if (got.ssi_signo == SIGHUP)
        replace_begin();
    else
        return 0;
    return GOES_ON;
}

static int handle(const struct epoll_event *ev)
{
    unsigned int which = (unsigned int)(ev->data.u64 & 0xffffffff);

    switch ((enum source)(ev->data.u64 >> 56)) {
    case FROM_SIGNAL:
        return take_signal();
    case FROM_RUNTIMES:
        runtimes_accept(own.runtimes_fd);
        break;
    case FROM_INTAKE:
        runtime_read(which);
        break;
    case FROM_MGPUDS:
        mgpuds_accept(own.mgpuds_fd);
        break;
    case FROM_CANDIDATE:
        candidate_read(which);
        break;
    case FROM_MGPUD:
        mgpud_event(ev->events);
        break;
    case FROM_MGPUD_END:
        mgpud_end();
        break;
    case FROM_CHILD:
        return child_end(which);
    case FROM_STANDBY:
        standby_end();
        break;
    case FROM_TRIAL:
        trial_end(&own);
        break;
    }
    return GOES_ON;
}

static int serve(void)
{
    struct epoll_event ev[64];
    int n, status;

    for (;;) {
        n = epoll_wait(events_fd, ev, 64, (int)housekeeping());
        for (int i = 0; i < n; i++)
            if ((status = handle(&ev[i])) != GOES_ON)
                return status;
    }
}

static const char usage[] =
    "usage: mgpu-holder --seccomp-socket PATH --mgpud-socket PATH [--watchdog-ms MS]\n"
    "                   [--mgpud-log PATH] [--mgpud-lock PATH] [--standby] [-- MGPUD ARGUMENT...]\n"
    "SIGHUP: replaces itself by the program at its own path; SIGUSR1: starts a mgpud that takes over\n";

/* resume: what the holder that this one replaces has left; NULL: it replaces none. */
static bool read_arguments(int argc, char **argv, const char **resume)
{
    static const struct option options[] = {
        {"seccomp-socket", required_argument, NULL, 's'},
        {"mgpud-socket", required_argument, NULL, 'w'},
        {"watchdog-ms", required_argument, NULL, 'd'},
        {"mgpud-log", required_argument, NULL, 'l'},
        {"mgpud-lock", required_argument, NULL, 'k'},
        {"resume", required_argument, NULL, 'r'},
        {"knows-format", required_argument, NULL, 'f'},
        {"standby", no_argument, NULL, 'b'},
        {0},
    };
    char *end = "";
    int opt;

    mgpuds.watchdog_ms = WATCHDOG_MS;
    while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (opt == 's')
            sockets[RUNTIMES].path = optarg;
        else if (opt == 'w')
            sockets[MGPUDS].path = optarg;
        else if (opt == 'd')
            mgpuds.watchdog_ms = strtol(optarg, &end, 10);
        else if (opt == 'l')
            mgpud_command.log = optarg;
        else if (opt == 'k')
            children.lock = optarg;
        else if (opt == 'r')
            *resume = optarg;
        else if (opt == 'b')
            standby.wanted = true;
        else if (opt == 'f')
            exit(!saved_is_known(strtol(optarg, NULL, 10)));
        else
            return false;
        if (*end || mgpuds.watchdog_ms < 0 || mgpuds.watchdog_ms > 86400000)
            return false;
    }
    if (optind < argc)
        mgpud_command.argv = argv + optind;
    return sockets[RUNTIMES].path && sockets[MGPUDS].path &&
           (optind == argc || !strcmp(argv[optind - 1], "--"));
}

static void begin(void)
{
    struct timespec boot;

    /* A surviving mgpud has ids of the previous holder: fewer than microseconds since boot. */
    clock_gettime(CLOCK_BOOTTIME, &boot);
    held_number_from((uint64_t)boot.tv_sec * 1000000 + (uint64_t)boot.tv_nsec / 1000);
    children.patience_ms = now_ms() + (mgpuds.watchdog_ms ? mgpuds.watchdog_ms : WATCHDOG_MS);
    if ((own.runtimes_fd = store_take_back(sockets[RUNTIMES].path)) < 0) {
        socket_serve(&sockets[RUNTIMES]);
        store_keep_socket(own.runtimes_fd);
    }
    socket_serve(&sockets[MGPUDS]);
    if (!mgpud_command.argv)
        tell_ready();
}

static void watch_all(void)
{
    watch(signals_fd, FROM_SIGNAL, 0, EPOLLIN);
    watch(own.runtimes_fd, FROM_RUNTIMES, 0, EPOLLIN);
    watch(own.mgpuds_fd, FROM_MGPUDS, 0, EPOLLIN);
    runtimes_watch();
    mgpuds_watch();
    children_watch();
}

int main(int argc, char **argv)
{
    const char *resume = NULL;
    int status;

    if (!read_arguments(argc, argv, &resume)) {
        fputs(usage, stderr);
        return 2;
    }
    /* One that is replaced has let go of it, and its listeners are worth more than a refusal. */
    if (!sockets_lock(sockets[RUNTIMES].path) && !resume)
        return 1;
    allow_many_files();
    manager_init();
    runtimes_init();
    mgpuds_init();
    children_init();
    replace_init(argv);
    mgpuds.starts_mgpud = mgpud_command.argv;
    mgpuds.ready = mgpud_ready;
    events_fd = epoll_create1(EPOLL_CLOEXEC);
    signals_fd = signals();
    if (!resume)
        begin();
    else if (replace_resume(resume, &own) < 0)
        return 1;
    for (int i = 0; i < SOCKETS; i++)
        socket_note(&sockets[i]);
    watch_all();
    status = serve();
    children_stop();
    store_drop_socket();
    for (int i = 0; i < SOCKETS; i++)
        unlink(sockets[i].path);
    return status;
}
