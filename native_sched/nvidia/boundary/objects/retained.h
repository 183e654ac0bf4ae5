/* Channels that nvidia-uvm retains. REGISTER_CHANNEL duplicates a channel's group into UVM's own client, and
 * what the driver takes for the group by itself stays until the channel is unregistered or the file closed,
 * however early both are freed (nvGpuOpsRetainChannel() of NVIDIA's open-gpu-kernel-modules).
 *
 * So a registration is a further name of the group in the tenant's tree, of no client, below the open file of
 * nvidia-uvm, as what is exported through a file is (exported.h): the charge stays until the last of these
 * names has ended. The arbiter makes the call (uvm/user_channel.c), and when the driver has ended a channel
 * it makes UNREGISTER_CHANNEL too. Where that fails, or the client's file is closed first, the charge stays
 * until the file of nvidia-uvm is closed. */
#ifndef MGPU_RETAINED_H
#define MGPU_RETAINED_H
#include "native_sched/nvidia/boundary/call/call.h"

/* In the account alone, no class of RM's: a channel that a file of nvidia-uvm retains. */
#define OBJECT_USER_CHANNEL 0xffff0058u

/* The next registration of the channel after `after` (0: the first). The tenant is held, or its calls are. */
uint32_t retained_next(const struct objects *o, uint32_t after, uint32_t client, uint32_t channel);
/* The file has said that it does not retain the channel. One that is not initialised has nothing. */
bool retained_unregister(const struct mediator *m, const struct open_file *file, uint32_t client,
                         uint32_t channel);
/* The driver has ended the object and all below it, and the account is about to. recovering: no charge has
 * been counted yet. */
void retained_end(const struct mediator *m, struct tenant *t, uint32_t slot, bool recovering);
#endif
