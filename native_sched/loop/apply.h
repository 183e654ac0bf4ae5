/* Applies the core's decisions, one call of the driver at a time. Between two calls the cards that are due
 * are polled and new decisions join the queue, so a suspend waits for at most one call of each other
 * tenant's. */
#ifndef MGPU_CARRY_OUT_H
#define MGPU_CARRY_OUT_H
#include "state.h"

/* Returns when nothing is left to apply: when the core is to be asked again. */
uint64_t loop_apply(struct loop *l);
#endif
