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

/* The GPU's list of what it can do, without dma-buf, which is refused: NCCL takes it wherever the list has
 * it, and ends on the refusal. For 615 the list's place is not known. */
int control_gpu_info(struct call *c, uint32_t *status)
{
    struct rm_gpu_info *info = (void *)c->params;
    uint32_t room = (c->params_bytes - (uint32_t)sizeof(*info)) / sizeof(info->entry[0]);
    int e = call_driver(c);

    if (c->m->rm.version >= RM_VERSION(615, 71))
        return e;
    for (uint32_t i = 0; e == 0 && *status == NV_OK && i < info->count && i < room; i++)
        if (info->entry[i].index == RM_GPU_INFO_DMABUF)
            info->entry[i].data = 0;
    return e;
}
