/* REGISTER_GPU_VASPACE of nvidia-uvm, made by the arbiter on the tenant's file and from its own copy of the parameters: a file
 * has the address spaces that are registered here, whatever another thread does to the caller's memory and descriptors
 * meanwhile.
 *
 * UVM registers a channel on the file alone on which its address space is registered (nvGpuOpsVerifyChannel() of NVIDIA's
 * open-gpu-kernel-modules), and that is one file at a time (nvGpuOpsSetPageDirectory()). An address space has no name but the
 * tenant's own (dup.c). So a tenant's channels can be on its own files alone, on those that we know, wherever the calls
 * that register them are made (registered.h).
 *
 * Nor can a card's faults come to another file, or to one that was initialised in another way than we have it done: each has
 * to have said so before it gets an address space (managed_flags.c).
 *
 * UVM duplicates the address space as it does memory: it is lent for the length of the call, and the rule of the process is kept
 * here (map_external.c). */
#include "caught.h"
#include "create.h"
#include "managed.h"
#include "shared.h"
#include <errno.h>

/* The file of its client, through which it is lent. NV_OK or another RM status. The tenant is held. */
static uint32_t find(const struct call *c, const struct uvm_register_gpu_vaspace *said,
                     struct open_file *client)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t root = objects_find(o, said->client, said->client);
    uint32_t slot = objects_find(o, said->client, said->vaspace);

    if (!root || !files_by_id(c->m->files, o->slot[root].file, client))
        return NV_ERR_INVALID_CLIENT;
    if (o->slot[root].owner.tgid != caller_tgid(c->caller))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    return slot && o->slot[slot].class_id == FERMI_VASPACE_A ? NV_OK : NV_ERR_INVALID_OBJECT_HANDLE;
}

/* NV_OK, another RM status, or a negative errno. */
static int make(struct call *c, struct uvm_register_gpu_vaspace *said, const struct open_file *client)
{
    int32_t ctl_fd = said->ctl_fd;
    int e;

    caught_intend(c, INTENT_UVM, client, c->cmd, said->client, said->vaspace);
    if ((e = shared_lend(c->m, client, said->client, said->vaspace)) != NV_OK)
        return e;
    said->ctl_fd = -1; /* it is not looked at */
    e = call_driver(c);
    said->ctl_fd = ctl_fd;
    shared_take_back(c->m, client, said->client, said->vaspace);
    return e < 0 ? e : (int)said->status;
}

int register_gpu_vaspace(struct call *c)
{
    struct uvm_register_gpu_vaspace *said = (void *)c->outer;
    struct open_file client;
    int e;
    WITH_CALLS_OF(c->tenant);

    if ((e = managed_initialized(c->m, c->tenant, c->file.id)) == -ENODATA) {
        said->status = NV_ERR_ILLEGAL_ACTION; /* as UVM answers */
        return 0;
    }
    if (e < 0)
        return e == -EPERM ? e : -EAGAIN;
    {
        WITH_TENANT(c->tenant);
        said->status = find(c, said, &client);
    }
    if (said->status) {
        stats_refused(&c->tenant->stats, said->status);
        return 0;
    }
    if ((e = make(c, said, &client)) < 0)
        return e;
    /* The file has one of that card: by an earlier worker, which has not told the caller. */
    if (c->again && e == NV_ERR_INVALID_DEVICE)
        e = NV_OK;
    said->status = (uint32_t)e;
    return 0;
}
