/* Making and ending RM objects for a tenant: placed in its tree, reserved in its ledger, executed, booked. Every path
 * by which an object comes to be ends here. */
#ifndef MGPU_CREATE_H
#define MGPU_CREATE_H
#include "mediate.h"

struct creation {
    uint32_t root, parent, handle, class_id;
};

/* Makes the object on `file`, the parameters being c->params, as the driver is to take them; handle is the object's
 * afterwards. 0 and an RM status, or a negative errno. The tenant's calls are held. */
int create_object(struct call *c, const struct open_file *file, struct creation *a, uint32_t *status);

/* Frees it in the driver, then in the books. */
int destroy_object(struct call *c, uint32_t root, uint32_t handle, uint32_t *status);

/* A name that is free, where the caller gives none: what is asked of the driver under a name that we know can be undone.
 * NV_OK, or that it is taken. The tenant is held. */
uint32_t choose_handle(struct tenant *t, uint32_t client, uint32_t *handle);

/* One that a later worker chooses again for the nth object of the same call, where it is free. */
uint32_t same_handle_again(const struct call *c, uint32_t nth);

/* What the scheduler calls a channel group or a channel; false for anything else. */
bool object_target(const struct mediator *m, const struct rm_object *obj, const struct open_file *file,
                   struct rm_target *out);

/* A subdevice that the client has made of a device of its own, given as a slot: its handle; 0: none. The tenant is held. */
uint32_t subdevice_below(const struct objects *o, uint32_t device);

/* How many bytes of parameters the class takes; -ENOENT: not a class for tenants. */
int class_params(const struct call *c, uint32_t class_id);
bool class_is_root(uint32_t class_id);
bool class_is_memory(uint32_t class_id);
bool class_is_virtual(uint32_t class_id);
/* In the books alone, no class of RM's: what map_dma.c has mapped. */
#define OBJECT_DMA_MAPPING 0xffff0057u
/* Memory of a card or of the host: what may have other names, be exported and be mapped. */
bool class_has_names(uint32_t class_id);

/* Whether an object with that parent may stand for the source's memory. The tenant is held. */
bool may_have_name(const struct objects *o, uint32_t source, uint32_t parent);

/* Adds an object that the driver has made by another name of `source`'s memory. -ENOSPC. The tenant is held. */
int book_alias(struct tenant *t, uint32_t parent, uint32_t source, uint32_t client, uint32_t handle);

/* Ends it in the books, with its charge. The tenant is held. */
void drop_object(struct tenant *t, uint32_t slot);

/* Frees in the driver an object of this call's file. False when it may still be there. */
bool unmake(struct call *c, uint32_t client, uint32_t parent, uint32_t handle);
#endif
