/* With whom a program has shared its objects, beyond what RM is told. RM keeps a list of policies for an
 * object, and takes that of the nearest object above where one has none of its own
 * (rsAccessGetActiveShareList(), clientShareResource() of NVIDIA's open-gpu-kernel-modules).
 *
 * A policy for all clients would be one for processes outside mgpu too, which need only guess two handles. So
 * it is written down here, and RM gets a policy for no client in its place, which changes its list in the
 * same way. Where RM refuses a duplicate for want of it, the object is shared with the one client that asks,
 * for the length of its call. All others are RM's to judge: of a process, of a client by its name, of the
 * same user. */
#ifndef MGPU_SHARED_H
#define MGPU_SHARED_H
#include "native_sched/nvidia/boundary/call/call.h"

/* struct rm_object's `shared`. */
enum { SHARED_SAID = 1, SHARED_WITH_ALL = 2 };

/* What RM gets in the place of it. */
struct rm_share_policy shared_for_rm(const struct rm_share_policy *request);
/* The file of a client of the tenant's, whose own process has to call: RM takes objects for nvidia-uvm from
 * no other process, so the arbiter that lends them checks it. NV_OK or another RM status. */
uint32_t shared_client(const struct call *c, uint32_t client, struct open_file *out);
/* The arbiter makes the call on the file of the object's client. 0, a negative errno or rm_refusal(). */
int shared_tell(const struct mediator *m, const struct open_file *file, uint32_t client, uint32_t handle,
                const struct rm_share_policy *policy);
/* Shares the object with all clients for the length of a call of nvidia-uvm's, or ends that. UVM duplicates
 * the object, and RM lets only the process of its client do so. Returns as shared_tell(). */
int shared_lend(struct call *c, const struct open_file *file, uint32_t client, uint32_t handle);
int shared_take_back(const struct mediator *m, const struct open_file *file, uint32_t client,
                     uint32_t handle);
/* RM has taken what it was told for that object. */
void shared_note(struct objects *o, uint32_t slot, const struct rm_share_policy *request);
/* Whether it is shared with all clients. */
bool shared_with_all(const struct objects *o, uint32_t slot);
#endif
