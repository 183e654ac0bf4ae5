/* Controls that are more than passed on, by what their parameters hold. Each serves one call: 0, with RM's
 * status in *status where it is not the driver's in the outer struct; or a negative errno. */
#ifndef MGPU_CONTROL_H
#define MGPU_CONTROL_H
#include "native_sched/nvidia/boundary/call/call.h"

/* Parameters that begin with the id of a card: the tenant's, or it does not exist. */
int control_of_card(struct call *c, uint32_t *status);
/* Lists of cards. */
int control_device_ids(struct call *c, uint32_t *status);
int control_probed_ids(struct call *c, uint32_t *status);
int control_active_ids(struct call *c, uint32_t *status);
int control_attach(struct call *c, uint32_t *status);
int control_gpu_instances(struct call *c, uint32_t *status);

/* What the tenant had of the card. Its parameters are not copied. */
int control_utilization(struct call *c, uint32_t *status);
/* A program has come that may ask for it. */
void utilization_expected(const struct tenant *t);

/* Export to open files, and import from them. */
int control_export(struct call *c, uint32_t *status);
int control_import(struct call *c, uint32_t *status);
int control_export_info(struct call *c, uint32_t *status);

int control_inherited_share(struct call *c, uint32_t *status);

/* Peers: there are none. */
int control_p2p_caps(struct call *c, uint32_t *status);
int control_p2p_caps_lists(struct call *c, uint32_t *status);
int control_p2p_matrix(struct call *c, uint32_t *status);
int control_fabric_status(struct call *c, uint32_t *status);
/* Of NVLink, and of the fabric behind it: the answers of a card that has neither are zeros. */
int control_no_links(struct call *c, uint32_t *status);
/* What the driver reports, without what every tenant is refused. */
int control_classes(struct call *c, uint32_t *status);
int control_class_list(struct call *c, uint32_t *status);

/* Parameters that point to lists: copied, executed with our copies, copied back. */
int control_lists(struct call *c, uint32_t *status);

#endif
