#include "group_control.h"
#include "groups.h"
#include "groups_private.h"
#include <errno.h>

/* Alone on its engine, a favoured group keeps it while it has work, and any other leaves it as soon as
 * another group has some (GPreempt, ATC'25: 1 s and 1 us). Several groups of one tenant share the engine as
 * they would natively: such slices would starve them of each other, or make them switch all the time. So do
 * a tenant that drains and those beside it. */
static uint64_t timeslice_us(const struct groups *g, const struct group *group)
{
    enum { FIRST_US = 1000000, LAST_US = 1 };

    for (uint32_t i = 0; i < g->groups; i++)
        if (&g->group[i] != group && g->group[i].live && g->group[i].card == group->card &&
            g->group[i].copies == group->copies)
            return CUDA_TIMESLICE_US;
    if (g->favour == FAVOUR_EVEN)
        return CUDA_TIMESLICE_US;
    return g->favour == FAVOUR_FIRST ? FIRST_US : LAST_US;
}

int timeslices_apply(struct groups *g)
{
    int error = 0, e;

    assert_held(&g->lock);
    for (uint32_t i = 0; i < g->groups && g->favour; i++) {
        struct group *group = &g->group[i];
        uint64_t wanted_us;

        if (!group->live || (wanted_us = timeslice_us(g, group)) == group->has_timeslice_us)
            continue;
        e = group_set_timeslice(g->ops, g->driver, &group->name, wanted_us);
        /* Where RM refuses it the group keeps what it has, and there is suspension alone. */
        if (rm_refused(e)) {
            refusals_note(g->refusals, group->card, MGPU_WITHOUT_TIMESLICES, e);
            e = 0;
        }
        if (e == 0)
            group->has_timeslice_us = wanted_us;
        else if (e != -ESRCH)
            error = e;
    }
    return error;
}

int groups_favour(struct groups *g, enum favour favour)
{
    WITH_GROUPS(g);

    g->favour = favour;
    return g->running ? timeslices_apply(g) : 0; /* groups_run() gives them before it runs any */
}

int groups_set_timeslice(struct groups *g, uint32_t client, uint32_t handle, uint64_t timeslice_us)
{
    struct group *group;
    WITH_GROUPS(g);

    if (!(group = group_find(g, client, handle)))
        return -ESRCH;
    group->timeslice_us = timeslice_us;
    return 0;
}

int groups_get_timeslice(struct groups *g, uint32_t client, uint32_t handle, uint64_t *timeslice_us)
{
    struct group *group;
    WITH_GROUPS(g);

    if (!(group = group_find(g, client, handle)))
        return -ESRCH;
    *timeslice_us = group->timeslice_us ? group->timeslice_us : CUDA_TIMESLICE_US;
    return 0;
}
