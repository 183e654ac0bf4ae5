#include "workers.h"
#include "clock.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { GRACE_MS = 300 };

static bool stop;
static int ended_fd;

bool workers_stop(void)
{
    return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static sigset_t end_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

/* Blocked, they wait for signals_wait(); the first process of a container would not get them otherwise. */
void signals_hold(void)
{
    sigset_t set = end_signals();

    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void signals_wait(double milliseconds)
{
    sigset_t set = end_signals();
    int64_t end_ns = now_ns() + (int64_t)(milliseconds * NS_PER_MS);

    for (;;) {
        int64_t left_ns = end_ns - now_ns();
        struct timespec left = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};

        if (left_ns <= 0 || sigtimedwait(&set, NULL, &left) >= 0)
            return;
    }
}

struct job {
    void (*work)(void *);
    void *argument;
};

static void *run_job(void *argument)
{
    static const uint64_t one = 1;
    struct job *job = argument;

    job->work(job->argument);
    if (write(ended_fd, &one, sizeof one) < 0)
        abort();
    return NULL;
}

/* Whether all workers have ended within this time; -1: no limit. A signal at fd, unless -1, ends the wait. */
static bool all_ended(unsigned int *running, int signal_fd, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = ended_fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
    uint64_t ended;

    while (*running) {
        int ready = poll(fds, 2, timeout_ms);

        if (!ready || (ready > 0 && fds[1].revents))
            return false;
        if (ready > 0 && read(ended_fd, &ended, sizeof ended) == sizeof ended)
            *running -= (unsigned int)ended;
    }
    return true;
}

bool workers_run(void (*work)(void *), void *arguments, size_t argument_bytes, unsigned int count)
{
    sigset_t set = end_signals();
    int signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    pthread_t threads[count];
    struct job jobs[count];
    unsigned int running = count;
    bool all;

    ended_fd = eventfd(0, EFD_CLOEXEC);
    if (signal_fd < 0 || ended_fd < 0)
        abort();
    for (unsigned int i = 0; i < count; i++) {
        jobs[i] = (struct job){work, (char *)arguments + i * argument_bytes};
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]))
            abort();
    }
    all = all_ended(&running, signal_fd, -1);
    if (!all) {
        __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
        all = all_ended(&running, -1, GRACE_MS);
    }
    for (unsigned int i = 0; i < count && all; i++)
        pthread_join(threads[i], NULL);
    return all;
}
