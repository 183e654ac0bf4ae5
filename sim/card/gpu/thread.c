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
    TIMER_GAP_NS = 20 * US_NS, /* events closer than this share a wake-up; their instants stay exact */
    /* A flood of rings wakes the thread at most this often, in the long run. */
    PASS_COST_NS = 10 * US_NS,
    PASS_CREDIT_NS = 2000 * US_NS,
    PASS_PAUSE_US = 100,
    SLIP_BATCHES = 8, /* after so many, catching up must be at twice the speed of time, or it is given up */
};

void gpu_lock(struct gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
}

static void slip(struct gpu *gpu, uint64_t now_ns)
{
    uint64_t behind_ns = now_ns - gpu->at_ns;

    for (int i = 0; i < GPU_ENGINES; i++)
        engine_slip(&gpu->engines[i], behind_ns);
    gpu->slipped_ns += behind_ns;
    gpu->at_ns = now_ns;
}

uint64_t gpu_catch_up(struct gpu *gpu)
{
    uint64_t began_ns = monotonic_ns(), began_at_ns = gpu->at_ns;

    for (unsigned batch = 1;; batch++) {
        uint64_t now_ns = monotonic_ns();

        if (gpu_advance(gpu, now_ns))
            return now_ns;
        if (batch % SLIP_BATCHES == 0) {
            if (gpu->at_ns - began_at_ns < 2 * (now_ns - began_ns)) {
                slip(gpu, now_ns);
                return now_ns;
            }
            began_ns = now_ns;
            began_at_ns = gpu->at_ns;
        }
        pthread_mutex_unlock(&gpu->lock);
        pthread_mutex_lock(&gpu->lock);
    }
}

static void arm(struct gpu *gpu)
{
    uint64_t next_ns = gpu_next_event_ns(gpu);
    struct itimerspec timer = {0};

    if (next_ns != NEVER_NS && next_ns < gpu->timer_pass_ns + TIMER_GAP_NS)
        next_ns = gpu->timer_pass_ns + TIMER_GAP_NS;
    if (next_ns == gpu->armed_ns)
        return;
    gpu->armed_ns = next_ns;
    if (next_ns != NEVER_NS) {
        timer.it_value.tv_sec = (time_t)(next_ns / 1000000000u);
        timer.it_value.tv_nsec = (long)(next_ns % 1000000000u);
    }
    timerfd_settime(gpu->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

void gpu_settle_unlock(struct gpu *gpu)
{
    /* What is left for another batch is the thread's: its timer is set to what is past. */
    gpu_advance(gpu, monotonic_ns());
    status_show(gpu);
    arm(gpu);
    pthread_mutex_unlock(&gpu->lock);
}

void gpu_refresh(struct gpu *gpu)
{
    gpu_lock(gpu);
    gpu_catch_up(gpu);
    gpu_settle_unlock(gpu);
}

void gpu_each_channel_of(struct gpu *gpu, uint32_t client, void (*act)(struct gpu_channel *channel))
{
    for (struct gpu_group *group = gpu->groups; group; group = group->next) {
        if (group->totals.owner.client != client)
            continue;
        for (struct gpu_channel *channel = group->channels; channel; channel = channel->next)
            act(channel);
    }
}

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
