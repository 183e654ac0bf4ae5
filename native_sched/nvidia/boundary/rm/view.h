/* Controls whose answer is rewritten to the tenant's own view. Each gets the parameters in c->params, calls
 * the driver and edits what came back; *status is the RM status inside the outer struct. */
#ifndef MGPU_VIEW_H
#define MGPU_VIEW_H
#include "native_sched/nvidia/boundary/call/call.h"

int view_attached_ids(struct call *c, uint32_t *status);
int view_id_info(struct call *c, uint32_t *status);
int view_fb_info(struct call *c, uint32_t *status);
/* The same of a list that the driver has filled. */
void view_fb_list(struct call *c, void *list, uint32_t count, uint32_t *status);
int view_fb_regions(struct call *c, uint32_t *status);
int view_pids(struct call *c, uint32_t *status);
int view_pid_info(struct call *c, uint32_t *status);

/* The tenant's one process on the card that the call asks about, as the caller names it; RM_PERFMON_NO_PID
 * where it is not one. */
int view_only_process(struct call *c, uint32_t *pid, uint32_t *status);
/* RM's id of a card is that of one that the tenant has. */
bool granted_gpu(const struct call *c, uint32_t gpu_id);
#endif
