/* The thread that polls the cards for work, reports it to the core and applies its decisions. It is one
 * thread for all cards, so that a tenant on several is suspended as a whole. */
#ifndef MGPU_LOOP_H
#define MGPU_LOOP_H
#include "state.h"

int loop_start(struct loop *l, const struct mediator *m, struct refusals *refusals);
void loop_stop(struct loop *l);
#endif
