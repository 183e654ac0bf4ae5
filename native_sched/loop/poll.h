/* Polls the cards for work and reports it to the core. */
#ifndef MGPU_LOOK_H
#define MGPU_LOOK_H
#include "state.h"

/* Polls every card that is due. */
void loop_poll(struct loop *l);
/* Sets when each card is polled next, by what the core had to know at its last decision. */
void loop_plan_polls(struct loop *l, uint64_t now);
/* After a release the thread asks nothing of the card, and no tenant has work there. */
void loop_release_card(struct loop *l, uint32_t card, bool released);
bool loop_card_is_released(struct loop *l, uint32_t card);
#endif
