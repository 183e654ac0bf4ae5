/* Which entities of one class get the cards of one domain. */
#ifndef MGPU_SELECT_H
#define MGPU_SELECT_H
#include "class.h"

/* s->queue[0..n) has all that have work and may run. Marks the chosen (entity.chosen), begins their turns,
 * and returns the cards they take. The others have entity.why set. */
uint32_t select_run(struct sched *s, const struct sched_class *class, uint32_t n, uint64_t now);
#endif
