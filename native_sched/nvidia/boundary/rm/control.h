/* Controls that are more than passed on, by what their parameters hold. Each serves one call: 0, with RM's
 * status in *status where it is not the driver's in the outer struct; or a negative errno. */
#ifndef MGPU_CONTROL_H
#define MGPU_CONTROL_H
#include "native_sched/nvidia/boundary/call/call.h"

/* Another control with parameters of ours, on the object and in the name of the one that the caller made:
 * 0, a negative errno or rm_refusal(). file: the one that it names; NULL: none. */
int control_ask(struct call *c, uint32_t cmd, void *params, uint32_t bytes, const struct open_file *file);
/* As a control answers what that returned. */
static inline int control_answer(int e, uint32_t *status)
{
    *status = rm_refused(e);
    return *status ? 0 : e;
}

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

/* The tenant's cards can be peers: it has several, and the driver is one whose NV50_P2P is known. */
bool peers_are_served(const struct call *c);
/* The driver's answers among the tenant's cards, else those of cards that have no peers. */
int control_p2p_caps(struct call *c, uint32_t *status);
int control_p2p_caps_lists(struct call *c, uint32_t *status);
int control_p2p_matrix(struct call *c, uint32_t *status);
int control_fabric_status(struct call *c, uint32_t *status);
/* NVLink, without links to cards that the tenant does not have. */
int control_links(struct call *c, uint32_t *status);
/* The fabric behind it: the answer of a card that has none is zeros. */
int control_no_fabric(struct call *c, uint32_t *status);
/* Memory of whole cards that other devices' drivers reach for the process. */
int control_third_party(struct call *c, uint32_t *status);
/* What the driver reports, without what this tenant is refused. */
int control_gpu_info(struct call *c, uint32_t *status);
int control_classes(struct call *c, uint32_t *status);
int control_class_list(struct call *c, uint32_t *status);

/* Parameters that point to lists: copied, executed with our copies, copied back. */
int control_lists(struct call *c, uint32_t *status);
/* The same of the card's memory, as the tenant has it. */
int control_fb_list(struct call *c, uint32_t *status);
/* Memory of the client that is debugged, read or written piece by piece through our copy. */
int control_debug_memory(struct call *c, uint32_t *status);

#endif
