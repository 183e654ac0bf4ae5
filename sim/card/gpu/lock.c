#include "../../../base/clock.h"
#include "state.h"
#include <sys/timerfd.h>

enum {
    TIMER_GAP_NS = 20 * US_NS, /* events closer than this share a wake-up; their instants stay exact */
    SLIP_BATCHES = 8, /* after so many, catching up must be at twice the speed of time, or it is given up */
};

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
        gpu_lock(gpu);
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
