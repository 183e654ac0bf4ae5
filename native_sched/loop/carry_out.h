/* Carries the core's decisions out, a call to the driver at a time. Between two calls the cards that are due are looked at,
 * and what is decided then takes its turn: however much there is to suspend or to resume, nobody's suspend waits for more than
 * one call of each other's. */
#ifndef MGPU_CARRY_OUT_H
#define MGPU_CARRY_OUT_H
#include "loop.h"

/* Returns when nothing is left to do: when the core wants to be asked again. */
uint64_t loop_carry_out(struct loop *l);
#endif
