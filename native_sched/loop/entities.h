/* The tenants that are scheduled: added, changed, asked about and removed by the engine library's other
 * threads. */
#ifndef MGPU_ENTITIES_H
#define MGPU_ENTITIES_H
#include "state.h"

void loop_configure(struct loop *l, const struct mgpu_sched_config *config);
int loop_card_policy(struct loop *l, uint32_t card, uint32_t policy);
/* Adds the tenant, or changes it. */
int loop_schedule(struct loop *l, const struct sched_entity_config *config, struct groups *groups,
                  struct utilization *utilization);
/* After this the thread no longer touches the tenant's groups. */
void loop_forget(struct loop *l, uint64_t id);
/* Its container is frozen, or is no longer. -ENOENT. */
int loop_pause(struct loop *l, uint64_t id, bool paused);
/* It is evicted until then, 0: no longer. -ENOENT; -EINVAL for online. */
int loop_drain(struct loop *l, uint64_t id, uint64_t until_ns);
/* The tenant's work goes on although it is to be suspended. */
enum mgpu_unsuspendable loop_unsuspendable(struct loop *l, uint64_t id);
int loop_state(struct loop *l, uint64_t id, struct mgpu_sched_state *out);

/* NULL when there is none. */
struct loop_entity *loop_entity_of(struct loop *l, uint64_t id);
/* The core's reason as the engine's interface numbers it. */
uint32_t loop_why(enum sched_why why);
#endif
