#include "../../../base/clock.h"
#include "../../../base/mutex.h"
#include "doorbell.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    THREAD_STACK_BYTES = 256 << 10,
    THREAD_PRIORITY = 2, /* above what is ordinary; a scheduler that polls the card may be above it */
    EVENT_BATCH = 64,
    /* A flood of rings wakes the thread at most this often, in the long run. */
    PASS_COST_NS = 10 * US_NS,
    PASS_CREDIT_NS = 2000 * US_NS,
    PASS_PAUSE_US = 100,
};

static void pass(struct gpu *gpu, const struct epoll_event *events, int count)
{
    gpu_lock(gpu);
    for (int i = 0; i < count; i++)
        if (events[i].data.u64 >= WAKE_DOORBELL)
            gpu_each_channel_of(gpu, (uint32_t)events[i].data.u64, channel_look);
    polled_look(gpu);
    gpu_catch_up(gpu);
    polled_accept(gpu);
    for (int i = 0; i < count; i++) {
        switch (events[i].data.u64) {
        case WAKE_TIMER:
            gpu->armed_ns = NEVER_NS;
            gpu->timer_pass_ns = gpu->at_ns;
            break;
        case WAKE_KICK:
            gpu_recheck(gpu, NULL, 0);
            break;
        default:
            gpu_each_channel_of(gpu, (uint32_t)events[i].data.u64, channel_accept);
            gpu_recheck(gpu, NULL, (uint32_t)events[i].data.u64);
        }
    }
    gpu_settle_unlock(gpu);
}

static void *gpu_run(void *argument)
{
    struct gpu *gpu = argument;
    struct epoll_event events[EVENT_BATCH];
    uint64_t paid_ns = 0;

    prctl(PR_SET_TIMERSLACK, 1UL);
    for (;;) {
        int count = epoll_wait(gpu->epoll_fd, events, EVENT_BATCH, polled_wait_ms(gpu));
        uint64_t now_ns = monotonic_ns();

        if (count < 0)
            continue;
        if (paid_ns + PASS_CREDIT_NS < now_ns)
            paid_ns = now_ns - PASS_CREDIT_NS;
        paid_ns += PASS_COST_NS;
        if (paid_ns > now_ns)
            usleep(PASS_PAUSE_US);
        pass(gpu, events, count);
    }
    return NULL;
}

static int watch(struct gpu *gpu, int fd, uint64_t wake)
{
    /* Edges: nothing is read, and each write or expiry is an edge. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = wake};

    return epoll_ctl(gpu->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int gpu_create(struct gpu **out, const struct gpu_costs *costs)
{
    struct gpu *gpu = calloc(1, sizeof *gpu);
    int error;

    if (!gpu)
        return -ENOMEM;
    gpu->half_switch_ns = (uint64_t)costs->switch_us * US_NS / 2;
    gpu->registers = costs->registers;
    gpu->faults = costs->faults;
    gpu->launch_ns = (uint64_t)costs->launch_us * US_NS;
    gpu->copy_bytes_per_ms = (uint64_t)costs->copy_mib_per_ms << 20;
    gpu->armed_ns = NEVER_NS;
    gpu->at_ns = monotonic_ns();
    for (uint32_t i = 0; i < GPU_ENGINES; i++) {
        gpu->engines[i].gpu = gpu;
        gpu->engines[i].index = i;
        gpu->engines[i].at_ns = gpu->at_ns;
    }
    mutex_init_inheriting(&gpu->lock);
    gpu->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    gpu->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    gpu->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (gpu->epoll_fd < 0 || gpu->timer_fd < 0 || gpu->kick_fd < 0)
        return -errno;
    error = status_start(gpu);
    error = error ? error : timeline_start(&gpu->timeline);
    error = error ? error : watch(gpu, gpu->timer_fd, WAKE_TIMER);
    error = error ? error : watch(gpu, gpu->kick_fd, WAKE_KICK);
    *out = gpu;
    return error;
}

static int thread_start(struct gpu *gpu)
{
    struct sched_param priority = {.sched_priority = THREAD_PRIORITY};
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    error = pthread_create(&thread, &attributes, gpu_run, gpu);
    pthread_attr_destroy(&attributes);
    if (error)
        return -error;
    /* Without the right to, wake-ups are later and instants the same. */
    pthread_setschedparam(thread, SCHED_FIFO, &priority);
    return 0;
}

int gpu_start(struct gpu *gpu)
{
    int error = thread_start(gpu);

    if (error)
        return error;
    gpu_add(gpu);
    return 0;
}
