/* GPUDirect RDMA and GDRCopy: a NIC's driver asks RM for memory by its address, for the process that runs
 * (nvidia_p2p_get_pages()). RM has that of the objects of NV50_THIRD_PARTY_P2P which the process made, and
 * we made this one. */
#include "control.h"

/* Names the caller's client to RM, and by it the process that made that. A second time changes nothing
 * (CliAddThirdPartyP2PClientPid()). */
static int name_process(struct call *c, uint32_t *status)
{
    const struct rm_control *theirs = (const void *)c->outer;
    uint32_t client = theirs->client;
    struct rm_control ctl = {.client = client,
                             .object = theirs->object,
                             .cmd = NV503C_CTRL_CMD_REGISTER_PID,
                             .params_size = sizeof(client)};
    struct driver_call d = call_for_driver(c, &c->file);
    int e;

    d.cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl));
    d.row = NULL; /* the container has none */
    d.outer = (uint8_t *)&ctl;
    d.outer_bytes = sizeof(ctl);
    d.params = (uint8_t *)&client;
    d.params_bytes = sizeof(client);
    e = call_execute(c, &d);
    *status = ctl.status;
    return e;
}

int control_third_party(struct call *c, uint32_t *status)
{
    int e = name_process(c, status);

    return e < 0 || *status ? e : call_driver(c);
}
