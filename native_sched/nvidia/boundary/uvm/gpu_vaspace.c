/* REGISTER_GPU_VASPACE of nvidia-uvm, made by the arbiter on the tenant's file and from its own copy of the
 * parameters: a file has the address spaces that are registered here, whatever another thread does to the
 * caller's memory and descriptors meanwhile.
 *
 * UVM registers a channel on the file alone on which its address space is registered (nvGpuOpsVerifyChannel()
 * of NVIDIA's open-gpu-kernel-modules), and that is one file at a time (nvGpuOpsSetPageDirectory()). So a
 * file that we have never seen has no channels, and no card's faults: it retains nothing. Each has to say how
 * it was initialised when it gets an address space (initialize.c), and stays so.
 *
 * UVM duplicates the address space as it does memory: it is lent for the length of the call, and the rule of
 * the process is kept here (map_external.c). */
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
#include "native_sched/nvidia/boundary/objects/shared.h"
#include "uvm.h"
#include <errno.h>

/* The file of its client, through which it is lent. NV_OK or another RM status. */
static uint32_t find(const struct call *c, const struct uvm_register_gpu_vaspace *request,
                     struct open_file *client)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t slot = objects_find(o, request->client, request->vaspace);
    uint32_t status = shared_client(c, request->client, client);

    assert_held(&c->tenant->lock);
    if (status)
        return status;
    return slot && rm_kind_of(o->slot[slot].class_id) == RM_KIND_VASPACE ? NV_OK
                                                                         : NV_ERR_INVALID_OBJECT_HANDLE;
}

static struct answer make(struct call *c, struct uvm_register_gpu_vaspace *request,
                          const struct open_file *client)
{
    int e;

    inflight_intend(c, INTENT_UVM, client, c->cmd, request->client, request->vaspace);
    if ((e = shared_lend(c, client, request->client, request->vaspace)) < 0)
        return answer_of(e);
    e = call_uvm_without_fd(c, &request->ctl_fd);
    shared_take_back(c->m, client, request->client, request->vaspace);
    return driver_answer(e, request->status);
}

struct answer register_gpu_vaspace(struct call *c)
{
    struct uvm_register_gpu_vaspace *request = (void *)c->outer;
    struct open_file client;
    struct answer made;
    uint32_t status;
    int e;
    WITH_CALLS_OF(c->tenant);

    if ((e = managed_initialized(c->m, c->tenant, &c->file)) == -ENODATA)
        return answered(NV_ERR_ILLEGAL_ACTION); /* as UVM answers */
    if (e < 0)
        return failed(e == -EPERM ? e : -EAGAIN);
    {
        WITH_TENANT(c->tenant);
        status = find(c, request, &client);
    }
    if (status)
        return answered(status);
    made = make(c, request, &client);
    /* The file has one of that card: by the previous mgpud, which has not told the caller. */
    if (c->again && made.rm_status == NV_ERR_INVALID_DEVICE)
        made.rm_status = NV_OK;
    return made;
}
