/* nvidia-uvm: what the dispatcher and a restart ask of this room. */
#ifndef MGPU_UVM_H
#define MGPU_UVM_H
#include "native_sched/boundary/call/call.h"

/* Commands of nvidia-uvm. The outer struct is that of the few that are executed; -ENOTTY: not a command of
 * it. */
int uvm_outer_bytes(const struct mediator *m, uint32_t cmd);
bool uvm_passes(const struct mediator *m, uint32_t cmd);
struct answer mediate_uvm(struct call *c);
struct answer mediate_map_external(struct call *c);
struct answer register_gpu_vaspace(struct call *c);
struct answer uvm_register_channel(struct call *c);
/* One that the previous mgpud began, of the file, made to its end. */
int uvm_again(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t cmd,
              uint8_t *outer);
#endif
