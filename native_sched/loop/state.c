#include "state.h"
#include "base/clock.h"
#include <sys/eventfd.h>

uint64_t loop_now_ns(void)
{
    return monotonic_ns();
}

void loop_note(struct loop *l, uint64_t at_ns, uint64_t since_ns, uint64_t tenant, uint32_t kind,
               uint32_t card, uint32_t why)
{
    const struct mgpu_sched_event event = {
        .at_ns = at_ns,
        .since_ns = since_ns,
        .tenant = tenant,
        .kind = kind,
        .card = card,
        .why = why,
    };

    events_add(&l->events, &event);
}

void loop_kick(struct loop *l)
{
    eventfd_write(l->kick, 1);
}
