/* The tenants the loop knows, and what it notes of them. The loop's lock is held, except for loop_note(). */
#ifndef MGPU_ENTITIES_H
#define MGPU_ENTITIES_H
#include "loop.h"

/* NULL when there is none. */
struct loop_entity *loop_entity_of(struct loop *l, uint64_t id);
uint64_t loop_now_ns(void);
void loop_note(struct loop *l, uint64_t at_ns, uint64_t since_ns, uint64_t tenant, uint32_t kind,
               uint32_t card, uint32_t why);
/* The core's reason as the engine's interface numbers it. */
uint32_t loop_why(enum sched_why why);
#endif
