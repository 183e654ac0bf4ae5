#include "handles.h"

/* RM's own clients begin at 0xc1d00000, with 20 bits of number (RS_CLIENT_HANDLE_BASE). Handles that RM gives
 * out itself begin at 0xcaf00000 (RS_UNIQUE_HANDLE_BASE), libcuda's at 0x5c000000. */
enum { OWN_HANDLES = 0x39000000, OWN_HANDLES_MASK = 0xffffff, OWN_CLIENTS_MASK = 0x7ffff };
#define OWN_CLIENTS 0xc1d80000u

uint32_t choose_handle(struct tenant *t, uint32_t client, uint32_t *handle)
{
    const struct objects *o = &t->objects;

    assert_held(&t->lock);
    if (*handle)
        return objects_find(o, client, *handle) ? NV_ERR_INSERT_DUPLICATE_NAME : NV_OK;
    do
        *handle = OWN_HANDLES | (t->last_handle++ & OWN_HANDLES_MASK);
    while (objects_find(o, client, *handle));
    return NV_OK;
}

static uint32_t scattered(const struct call *c, uint32_t nth)
{
    uint64_t id = ((c->again ? c->again : c->caller->req->id) + nth) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(id >> 32);
}

uint32_t same_handle_again(const struct call *c, uint32_t nth)
{
    return OWN_HANDLES | (scattered(c, nth) & OWN_HANDLES_MASK);
}

uint32_t same_client_again(const struct call *c, uint32_t nth)
{
    return OWN_CLIENTS | (scattered(c, nth) & OWN_CLIENTS_MASK);
}

bool is_own_client(uint32_t client)
{
    return (client & ~(uint32_t)OWN_CLIENTS_MASK) == OWN_CLIENTS;
}
