/* What the previous mgpud had begun and not finished when it was killed: undone, or finished. */
#ifndef MGPU_UNDO_H
#define MGPU_UNDO_H
#include "native_sched/nvidia/boundary/call/inflight.h"

/* Called by the next mgpud before it serves the tenant. Afterwards the driver and the account have all of
 * what was intended, or nothing. The tenant's audit is due in any case. */
void inflight_roll_back(const struct mediator *m, struct tenant *t, struct inflight *k);
#endif
