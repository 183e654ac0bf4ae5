/* Which of the clients are the arbiter's, and what of MIG instances they are told. nvidia_on_card.c has the
 * lock. */
#ifndef MGPU_TESTS_MIG_ON_CARD_H
#define MGPU_TESTS_MIG_ON_CARD_H
#include <stdbool.h>
#include <stdint.h>

struct rm_alloc;
struct rm_control;

void mig_on_card_begin(void);
/* One more of the arbiter's. */
void mig_on_card_client(uint32_t root);
bool mig_on_card_ours(uint32_t root);
/* False: it is no subscription. */
bool mig_on_card_subscribes(struct rm_alloc *alloc);
/* The same. */
bool mig_on_card_freed(uint32_t root, uint32_t handle);
/* Controls of subscriptions; and of the sizes that RM compares before it looks for an object
 * (_rmapiRmControl()). */
bool mig_on_card_asks_instance(const struct rm_control *ctl);
bool mig_on_card_wrong_size(const struct rm_control *ctl);
/* The RM status of control 0x20800179. */
uint32_t mig_on_card_runlist(uint32_t root, uint32_t *list, uint32_t bytes);
#endif
