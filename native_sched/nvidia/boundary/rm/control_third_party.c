/* GPUDirect RDMA and GDRCopy: a NIC's driver asks RM for memory by its address, for the process that runs
 * (nvidia_p2p_get_pages()). RM has that of the objects of NV50_THIRD_PARTY_P2P which the process made, and
 * we made this one. */
#include "control.h"

int control_third_party(struct call *c, uint32_t *status)
{
    uint32_t client = ((const struct rm_control *)(const void *)c->outer)->client;
    /* It names the process that made the client. A second time changes nothing
     * (CliAddThirdPartyP2PClientPid()). */
    int e = control_answer(control_ask(c, NV503C_CTRL_CMD_REGISTER_PID, &client, sizeof(client), NULL),
                           status);

    return e < 0 || *status ? e : call_driver(c);
}
