#include "mig.h"
#include "continued.h"

/* NV_OK where it may be made, or what RM says to a caller without the capability. */
static uint32_t examine(const struct call *c, const struct creation *a)
{
    const struct rm_instance *want = (const void *)c->params;
    const struct objects *o = &c->tenant->objects;
    uint32_t parent = call_find(c, a->root, a->parent);
    uint32_t above = rm_kind_of(a->class_id) == RM_KIND_GPU_INSTANCE ? NV20_SUBDEVICE_0
                                                                     : AMPERE_SMC_PARTITION_REF;
    const struct card *card;

    assert_held(&c->tenant->lock);
    if (!parent)
        return call_find(c, a->root, a->root) ? NV_ERR_INVALID_OBJECT_PARENT : NV_ERR_INVALID_CLIENT;
    if (o->slot[parent].class_id != above)
        return NV_ERR_INVALID_OBJECT_PARENT;
    card = mediator_card(c->m, o->slot[parent].card);
    if (!card || card->gpu_instance == RM_NO_INSTANCE)
        return NV_ERR_NOT_SUPPORTED;
    if (c->params_bytes != sizeof(*want))
        return NV_ERR_INVALID_ARGUMENT;
    if (want->id !=
        (rm_kind_of(a->class_id) == RM_KIND_GPU_INSTANCE ? card->gpu_instance : card->compute_instance))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    return NV_OK;
}

struct answer mig_subscribe(struct call *c, struct creation *a)
{
    struct tenant *t = c->tenant;
    uint32_t status;

    assert_held(&t->calls);
    {
        WITH_TENANT(t);
        if ((status = examine(c, a)) || (status = choose_handle(t, a->root, &a->handle)))
            return answered(status);
    }
    return continued_make(c, a);
}
