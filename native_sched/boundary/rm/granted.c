#include "granted.h"

bool granted_gpu(const struct call *c, uint32_t gpu_id)
{
    for (uint32_t i = 0; i < c->m->cards; i++)
        if (c->m->card[i].gpu_id == gpu_id && c->tenant->granted[c->m->card[i].index])
            return true;
    return false;
}
