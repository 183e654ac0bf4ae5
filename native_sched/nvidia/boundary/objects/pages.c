#include "pages.h"

/* The last that the client made, which is the first in the list; 0: it has none. */
static uint32_t device_of(const struct objects *o, uint32_t root)
{
    uint32_t i = root ? o->slot[root].first_child : 0;

    while (i && rm_kind_of(o->slot[i].class_id) != RM_KIND_DEVICE)
        i = o->slot[i].next_sibling;
    return i;
}

int pages_adopt(struct call *c, const struct open_file *file, uint32_t client, uint32_t handle)
{
    uint32_t address_space[] = {handle, 0, 0}; /* hObject, mapFlags, addrSpaceType */
    const struct rm_target of = {.file = *file, .client = client, .rm = &c->m->rm};
    struct objects *o = &c->tenant->objects;
    int64_t slot;
    int e;

    assert_held(&c->tenant->calls);
    {
        WITH_TENANT(c->tenant);
        if (!call_find_on(c, file, client, client) || objects_find(o, client, handle))
            return 0;
    }
    e = control_of_client(c->m->ops, c->m->driver, &of, client, NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE,
                          address_space, sizeof(address_space));
    if (e == -ENOENT || e == -ESRCH || rm_refused(e) ||
        (e == 0 && address_space[2] != RM_ADDRESS_SPACE_SYSTEM))
        return rm_refusal(NV_ERR_INVALID_OBJECT_HANDLE);
    if (e < 0)
        return e;
    WITH_TENANT(c->tenant);
    uint32_t device = device_of(o, call_find_on(c, file, client, client));
    if (!device)
        return rm_refusal(NV_ERR_INVALID_OBJECT_HANDLE);
    slot = objects_add(o, device, client, handle, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR);
    if (slot < 0)
        return rm_refusal(NV_ERR_NO_MEMORY);
    objects_commit(o, (uint32_t)slot);
    return 0;
}
