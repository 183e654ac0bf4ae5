/* An engine that dies in the middle of a call: in a process of its own, as it asks the driver. */
#ifndef MGPU_TESTS_DEATH_ON_CARD_H
#define MGPU_TESTS_DEATH_ON_CARD_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What stands for the driver's own memory, which does not end with the engine's process. */
#define ON_CARD_KEPT __attribute__((section("on_card_kept")))

/* Of the line to the card, on which no process dies between a question and its answer. */
extern pthread_mutex_t on_card_lock;

/* Before and after the driver is asked for something that lasts. */
void death_on_card(uint32_t cmd, const void *arg, bool answered);
#endif
