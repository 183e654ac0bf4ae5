#include "refusals.h"
#include "../driver/group_control.h"
#include <sys/eventfd.h>

int refusals_note(struct refusals *r, uint32_t card, enum mgpu_without kind, int error)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&r->first[card][kind], &none,
                                       rm_refused(error) ? (int)rm_refused(error) : error))
        eventfd_write(r->events, 1);
    return rm_errno(error);
}
