/* Polls the cards for work and reports it to the core. */
#ifndef MGPU_LOOK_H
#define MGPU_LOOK_H
#include "state.h"

/* Polls every card that is due. */
void loop_poll(struct loop *l);
/* Sets when each card is polled next, by what the core had to know at its last decision. */
void loop_plan_polls(struct loop *l, uint64_t now);
#endif
