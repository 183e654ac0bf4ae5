/* Looks for work where the core wants to know of it, and tells the core. */
#ifndef MGPU_LOOK_H
#define MGPU_LOOK_H
#include "loop.h"

/* Looks at every card that is due. */
void loop_look(struct loop *l);
/* Sets when each card is looked at next, by what the core wanted to know at its last decision. The loop's lock is held. */
void loop_plan_looks(struct loop *l, uint64_t now);
#endif
