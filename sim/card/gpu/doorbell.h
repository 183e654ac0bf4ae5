/* What wakes a card's thread, in epoll's data: a timer, another card, or WAKE_DOORBELL + the client. */
#ifndef MGPU_SIM_DOORBELL_H
#define MGPU_SIM_DOORBELL_H
#include <stdbool.h>
#include <stdint.h>

#define WAKE_TIMER    UINT64_C(1)
#define WAKE_KICK     UINT64_C(2)
#define WAKE_DOORBELL (UINT64_C(1) << 32)

struct gpu;

struct gpu_doorbell {
    struct gpu *gpu;
    uint32_t client;
    int fd;
    /* polled.c, under the card's lock */
    struct gpu_doorbell *next_polled;
    uint8_t *page; /* NULL: not asked for yet */
    int page_fd;
    bool rung;
};

/* polled.c. Its page is no longer looked at. */
void polled_end(struct gpu_doorbell *doorbell);
#endif
