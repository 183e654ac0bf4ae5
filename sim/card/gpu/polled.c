/* Doorbells that are pages, as the hardware's are (clc361.h: the region's size, where the doorbell is in it).
 * The card's thread looks at them, often while they are being rung; and at semaphores, which the host may
 * write without a ring. */
#include "../../../base/clock.h"
#include "doorbell.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REGION_BYTES = 65536, DOORBELL_AT = 0x90 };
enum { BUSY_WAIT_MS = 1, IDLE_WAIT_MS = 5, BUSY_FOR_MS = 200 };
#define NOT_RUNG UINT32_MAX /* no channel's token */

static uint32_t *bell(const struct gpu_doorbell *doorbell)
{
    return (uint32_t *)(void *)(doorbell->page + DOORBELL_AT);
}

static int page_make(struct gpu_doorbell *doorbell)
{
    static const uint64_t one = 1;
    struct gpu *gpu = doorbell->gpu;
    int fd = memfd_sealed("mgpu-usermode", REGION_BYTES, F_SEAL_SEAL);
    void *at;

    if (fd < 0)
        return fd;
    at = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return -ENOMEM;
    }
    doorbell->page = at;
    doorbell->page_fd = fd;
    __atomic_store_n(bell(doorbell), NOT_RUNG, __ATOMIC_RELEASE);
    doorbell->next_polled = gpu->polled;
    __atomic_store_n(&gpu->polled, doorbell, __ATOMIC_RELEASE);
    return write(gpu->kick_fd, &one, sizeof one) < 0 ? -errno : 0;
}

int gpu_doorbell_page(struct gpu_doorbell *doorbell)
{
    int error;

    gpu_lock(doorbell->gpu);
    error = doorbell->page ? 0 : page_make(doorbell);
    pthread_mutex_unlock(&doorbell->gpu->lock);
    return error ? error : memfd_reopen(doorbell->page_fd, O_RDWR);
}

void polled_end(struct gpu_doorbell *doorbell)
{
    struct gpu_doorbell **at = &doorbell->gpu->polled;

    if (!doorbell->page)
        return;
    gpu_lock(doorbell->gpu);
    while (*at != doorbell)
        at = &(*at)->next_polled;
    __atomic_store_n(at, doorbell->next_polled, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&doorbell->gpu->lock);
    munmap(doorbell->page, REGION_BYTES);
    close(doorbell->page_fd);
}

void polled_look(struct gpu *gpu)
{
    for (struct gpu_doorbell *doorbell = gpu->polled; doorbell; doorbell = doorbell->next_polled) {
        doorbell->rung = __atomic_exchange_n(bell(doorbell), NOT_RUNG, __ATOMIC_ACQ_REL) != NOT_RUNG;
        if (doorbell->rung)
            gpu_each_channel_of(gpu, doorbell->client, channel_look);
    }
}

void polled_accept(struct gpu *gpu)
{
    for (struct gpu_doorbell *doorbell = gpu->polled; doorbell; doorbell = doorbell->next_polled)
        if (doorbell->rung) {
            gpu->rung_ns = gpu->at_ns;
            gpu_each_channel_of(gpu, doorbell->client, channel_accept);
        }
    if (gpu->polled && gpu->blocked)
        gpu_recheck(gpu, NULL, 0);
}

int polled_wait_ms(const struct gpu *gpu)
{
    if (!__atomic_load_n(&gpu->polled, __ATOMIC_ACQUIRE))
        return -1;
    return monotonic_ns() - gpu->rung_ns < BUSY_FOR_MS * UINT64_C(1000000) ? BUSY_WAIT_MS : IDLE_WAIT_MS;
}
