/* Learns by which numbers a card's engines name channel groups. RM tells a group's number (GET_INFO), but
 * firmware may number groups itself: one higher on an H200 with 580.159.04, where it keeps a group that RM on
 * the host does not have. */
#ifndef MGPU_NUMBERS_H
#define MGPU_NUMBERS_H
#include "state.h"

/* Subtracts the card's difference from the numbers of its engines. Until it is learned, they name no tenant's
 * group. */
void numbers_translate(const struct loop *l, uint32_t card, struct engine_status *engine, int engines);
/* Learns the difference from what the card's graphics engine executes, where one alone explains it by a group
 * of a tenant that runs. engine: as the card has it. */
void numbers_learn(struct loop *l, uint32_t card, const struct engine_status *engine, int engines);
#endif
