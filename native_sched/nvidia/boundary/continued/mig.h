/* MIG: objects that stand for the GPU instance and the compute instance that a client works on. The driver
 * takes a capability's descriptor for each, which it duplicates in the process that calls, so that the calls
 * are continued (continued.h). Only the two instances of the granted card may be asked for: another one the
 * driver refuses by its capability. */
#ifndef MGPU_MIG_H
#define MGPU_MIG_H
#include "native_sched/nvidia/boundary/objects/handles.h"

/* As continued_make(). */
struct answer mig_subscribe(struct call *c, struct creation *a);
#endif
