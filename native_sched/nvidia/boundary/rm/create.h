/* Making and ending RM objects for a tenant: placed in its tree, reserved in its ledger, executed, accounted
 * for. Every path by which an object comes to be ends here. */
#ifndef MGPU_CREATE_H
#define MGPU_CREATE_H
#include "native_sched/nvidia/boundary/objects/drop.h"
#include "native_sched/nvidia/boundary/objects/handles.h"

/* Makes the object on `file`, the parameters being c->params, as the driver is to take them; handle is the
 * object's afterwards. */
struct answer object_create(struct call *c, const struct open_file *file, struct creation *a);

/* Has virtual memory made without its page tables (alloc.c); true where the caller had not asked for that. */
bool ask_without_tables(struct call *c, uint32_t class_id);

/* Tells the scheduler of a channel or a group before it is made. A negative errno: the scheduler has no room,
 * so the object must not be made, since nothing may run that it cannot stop. 0 for other objects. */
int object_announce(struct call *c, const struct open_file *file, const struct creation *a);

/* Frees it in the driver, then in the account. */
struct answer object_free(struct call *c, uint32_t root, uint32_t handle);

/* What the scheduler calls a channel group or a channel; false for anything else. */
bool object_target(const struct mediator *m, const struct rm_object *obj, const struct open_file *file,
                   struct rm_target *out);

/* A subdevice that the client has made of a device of its own, given as a slot: its handle; 0: none. */
uint32_t subdevice_below(const struct objects *o, uint32_t device);

/* In the account alone, no class of RM's: what map_dma.c has mapped. */
#define OBJECT_DMA_MAPPING 0xffff0057u
/* Whether an object with that parent may stand for the source's memory. */
bool may_have_name(const struct objects *o, uint32_t source, uint32_t parent);

/* Adds an object that the driver has made by another name of `source`'s memory. -ENOSPC. */
int object_add_alias(struct tenant *t, uint32_t parent, uint32_t source, uint32_t client, uint32_t handle);

/* Frees in the driver an object of this call's file. False when it may still be there. */
bool object_roll_back(struct call *c, uint32_t client, uint32_t parent, uint32_t handle);
#endif
