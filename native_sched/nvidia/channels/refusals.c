#include "refusals.h"
#include "group_control.h"
#include <sys/eventfd.h>

void refusals_note(struct refusals *r, uint32_t card, enum mgpu_without kind, int error)
{
    int none = 0, status = (int)rm_refused(error);

    if (atomic_compare_exchange_strong(&r->first[card][kind], &none, status ? status : error))
        eventfd_write(r->events, 1);
}

void refusals_withdraw(struct refusals *r, uint32_t card, enum mgpu_without kind, int error)
{
    atomic_compare_exchange_strong(&r->first[card][kind], &error, 0);
}
