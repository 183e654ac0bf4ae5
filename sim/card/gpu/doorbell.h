/* What wakes a card's thread, as epoll's 64 bits: a timer, another card, or WAKE_DOORBELL + the client that rang. */
#ifndef MGPU_SIM_DOORBELL_H
#define MGPU_SIM_DOORBELL_H
#include <stdint.h>

#define WAKE_TIMER    UINT64_C(1)
#define WAKE_KICK     UINT64_C(2)
#define WAKE_DOORBELL (UINT64_C(1) << 32)
#endif
