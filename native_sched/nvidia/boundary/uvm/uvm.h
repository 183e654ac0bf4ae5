/* nvidia-uvm: what the dispatcher and a restart ask of this room. */
#ifndef MGPU_UVM_H
#define MGPU_UVM_H
#include "native_sched/nvidia/boundary/call/call.h"

struct answer mediate_map_external(struct call *c);
struct answer uvm_end_external(struct call *c);
struct answer register_gpu_vaspace(struct call *c);
struct answer uvm_register_channel(struct call *c);
struct answer uvm_enable_peers(struct call *c);
/* The card of the tenant's that nvidia-uvm knows by that name; NULL: none. */
const struct card *uvm_granted_card(const struct call *c, const uint8_t *gpu);
/* One that the previous mgpud began, of the file, made to its end. */
int uvm_again(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t cmd,
              uint8_t *outer);
#endif
