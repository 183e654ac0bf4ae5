/* Escapes that RM itself turns into an allocation by class (rmapi_deprecated_*.c), or answers without one. */
#ifndef MGPU_OLDER_H
#define MGPU_OLDER_H
#include "native_sched/nvidia/boundary/call/call.h"

struct answer mediate_heap(struct call *c);
struct answer mediate_alloc_memory(struct call *c);
struct answer mediate_context_dma(struct call *c);
struct answer mediate_idle(struct call *c);
#endif
