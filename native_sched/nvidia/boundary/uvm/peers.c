/* ENABLE_PEER_ACCESS of nvidia-uvm: memory of one of the tenant's cards may be mapped on another of them from
 * now on, by MAP_EXTERNAL_ALLOCATION (map_external.c). The arbiter makes the call from its own copy of the
 * parameters: UVM would take any two cards that are registered on the file, as any card of the node can be.
 *
 * DISABLE_PEER_ACCESS and the end of a registration end such mappings in the driver; the account lets go of
 * them later, with their range or their file. */
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "uvm.h"
#include <string.h>

const struct card *uvm_granted_card(const struct call *c, const uint8_t *gpu)
{
    static const uint8_t none[sizeof(((struct card *)0)->uuid)];

    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->tenant->granted[c->m->card[i].index] && !memcmp(c->m->card[i].uuid, gpu, sizeof(none)) &&
            memcmp(gpu, none, sizeof(none)))
            return &c->m->card[i];
    return NULL;
}

struct answer uvm_enable_peers(struct call *c)
{
    const struct uvm_peers *peers = (const void *)c->outer;
    struct answer made;
    int e;
    WITH_CALLS_OF(c->tenant);

    if (!uvm_granted_card(c, peers->gpu) || !uvm_granted_card(c, peers->other))
        return answered(NV_ERR_INVALID_DEVICE); /* as UVM answers of a card that is not registered */
    inflight_intend(c, INTENT_UVM, &c->file, c->cmd, 0, 0);
    e = call_driver(c);
    made = driver_answer(e, call_status(c));
    /* They are peers already: by the previous mgpud, which has not told the caller. */
    if (c->again && made.rm_status == NV_ERR_INVALID_DEVICE)
        made.rm_status = NV_OK;
    return made;
}
