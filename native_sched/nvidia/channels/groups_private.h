/* Shared by the sources of the channel groups. */
#ifndef MGPU_GROUPS_PRIVATE_H
#define MGPU_GROUPS_PRIVATE_H
#include "base/mutex.h"
#include "group_types.h"

#define WITH_GROUPS(g) LOCKED_(groups_held, &(g)->lock)

enum { CUDA_TIMESLICE_US = 2048 }; /* read back on 595 (XSched's report) */
#define NO_TSG UINT32_MAX

static inline uint32_t userd_word(const struct userd *u, uint32_t offset)
{
    return *(const volatile uint32_t *)(const volatile void *)(u->at + offset);
}

/* Stopped by its tenant; group_apply() brings the driver to it. */
static inline void channel_stop(struct groups *g, struct channel *c, bool stop)
{
    assert_held(&g->lock);
    g->group[c->group].stopped += (uint32_t)stop - (uint32_t)c->stopped;
    c->stopped = stop;
}

/* suspend.c: brings the driver to what tenant and scheduler together want of the group. Returns the driver's
 * error; a group that is gone is none. */
int group_apply(struct groups *g, struct group *group);
/* Asks the driver of the group's card, once for all, whether it disables channels. */
void suspend_ask(struct groups *g, const struct group *group);
/* How many calls suspend all that the tenant has on the card. */
uint32_t suspend_calls(const struct groups *g, uint32_t card);

/* group_asks.c: which group a name is of, and what the driver is asked of groups and their channels. */
/* NULL: there is none. */
struct group *group_find(struct groups *g, uint32_t client, uint32_t handle);
int group_find_tsg_id(struct groups *g, struct group *group);
void channel_map_userd(struct groups *g, struct channel *c);
/* Asks one question about what the previous mgpud had; false: there is none left. */
bool groups_ask_recovered(struct groups *g);

/* timeslice.c: gives each group the timeslice that it should have by now. */
int timeslices_apply(struct groups *g);
#endif
