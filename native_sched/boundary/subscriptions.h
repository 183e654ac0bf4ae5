/* MIG: objects that stand for the GPU instance and the compute instance that a client works on. The driver takes a capability's
 * descriptor for each, which it duplicates in the process that calls, so that they are let through (let_through.h). Asked
 * for are the two of the card that was granted, and no others.
 *
 * What another thread makes of such a call after our look is the driver's to refuse, by the capability, or is what let_through.h
 * says of a flipped class. Whether it made what was asked for is asked of the driver before the tenant's next call is served:
 * only then is it in the books. At most LET_THROUGH_DOUBTFUL calls of a tenant may have ended without. */
#ifndef MGPU_SUBSCRIPTIONS_H
#define MGPU_SUBSCRIPTIONS_H
#include "create.h"

/* Classes that the tools of a node's operator use: the driver wants a capability for them that no container is given. */
bool class_is_of_operators(uint32_t class_id);

static inline bool class_is_subscription(uint32_t class_id)
{
    return class_id == AMPERE_SMC_PARTITION_REF || class_id == AMPERE_SMC_EXEC_PARTITION_REF;
}

/* As let_through(). The tenant's calls are held. */
int subscribe(struct call *c, struct creation *a, uint32_t *status);

/* Takes into the books what has been made since. The tenant's calls are held. */
int subscriptions_look(struct call *c);

/* Those not found yet; ended: only of calls that have ended. */
uint32_t subscriptions_open(const struct let_through *l, bool ended);

/* The file is gone. */
void subscriptions_forget(struct let_through *l, uint64_t file);
#endif
