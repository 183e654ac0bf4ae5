/* The end of objects in a tenant's account, with their charges. */
#ifndef MGPU_DROP_H
#define MGPU_DROP_H
#include "native_sched/nvidia/account/tenant.h"

/* Ends it in the account, with its charge. */
void object_drop(struct tenant *t, uint32_t slot);
/* ... of all that was made through the open file. */
void objects_drop_of_file(struct tenant *t, uint64_t file);
#endif
