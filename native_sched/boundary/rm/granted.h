/* Cards by RM's ids. */
#ifndef MGPU_GRANTED_H
#define MGPU_GRANTED_H
#include "native_sched/boundary/call/call.h"

/* RM's id of a card is that of one that the tenant has. */
bool granted_gpu(const struct call *c, uint32_t gpu_id);
#endif
