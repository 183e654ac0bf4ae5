/* The channel groups and channels of one tenant, as the scheduler sees them: they are suspended and resumed
 * together, and polled for work. The mediator adds and forgets them, the scheduler's thread suspends, resumes
 * and polls.
 *
 * A group runs when its tenant has asked for it (GPFIFO_SCHEDULE) and the scheduler lets the tenant run. The
 * lock is held over the driver's call, so that the record is what the driver did. */
#ifndef MGPU_GROUPS_H
#define MGPU_GROUPS_H
#include "group_types.h"

int groups_init(struct groups *g, const struct driver_ops *ops, struct driver *driver,
                struct refusals *refusals, struct ids *ids, int kick);
void groups_destroy(struct groups *g);

/* A group that the driver has just made. subdevice: as in struct bulk. -ENOSPC; what the driver says. */
int groups_add(struct groups *g, const struct rm_target *name, uint32_t card, uint32_t engine_type,
               uint32_t subdevice);
/* A channel is about to be made in the group: until it has been added, or was not made, only the group as a
 * whole can be suspended. -ESRCH: no such group; what the driver says. It must not be made then. */
int groups_channel_begins(struct groups *g, uint32_t client, uint32_t group);
void groups_channel_ends(struct groups *g, uint32_t client, uint32_t group);
/* -ENOSPC; -ESRCH: no such group; what the driver says. */
int groups_add_channel(struct groups *g, const struct rm_target *name, uint32_t group);
/* Groups of the previous mgpud, before their channels, with the tenant's own settings. The next groups_run()
 * brings the driver to them, and then asks how their work is seen, for which no container is to wait: until
 * then they count as busy. Those that the driver says nothing of, as on a lost card, are kept and tried
 * again. -ENOSPC; -ESRCH: no such group. */
int groups_recover(struct groups *g, const struct rm_target *name, const struct rm_object *obj,
                   uint32_t subdevice);
int groups_recover_channel(struct groups *g, const struct rm_target *name, const struct rm_object *obj,
                           uint32_t group);
/* A group or channel that was freed; any other object is ignored. */
void groups_forget(struct groups *g, uint32_t client, uint32_t handle);
/* Is the object a subdevice by which groups are suspended? */
bool groups_need(struct groups *g, uint32_t client, uint32_t subdevice);

/* The tenant's own scheduling calls on one of its groups. -ESRCH: it has no such group. */
int groups_want(struct groups *g, uint32_t client, uint32_t handle, bool wanted);
/* The tenant's own DISABLE_CHANNELS. A group rests only once its tenant has stopped all of its channels;
 * until then the tenant itself withholds the work of those that it stopped. -ESRCH: one of them is not here,
 * and nothing is done. */
int groups_stop(struct groups *g, const uint32_t *client, const uint32_t *channel, uint32_t channels,
                bool stop);
/* When this returns 0, groups that are suspended are off their runlists as a whole. */
int groups_unconfirmed(struct groups *g, bool unconfirmed);
int groups_set_timeslice(struct groups *g, uint32_t client, uint32_t handle, uint64_t timeslice_us);
int groups_get_timeslice(struct groups *g, uint32_t client, uint32_t handle, uint64_t *timeslice_us);

/* Suspends or resumes all of the tenant's groups. Suspended means off the engine when this returns 0, or off
 * the runlist where the driver disables no channels; a failure leaves some as they were, and the next call
 * tries them again. */
int groups_run(struct groups *g, bool run);
/* RM's status of the last suspend that it refused; 0: none. */
uint32_t groups_suspend_status(const struct groups *g);
/* The same in steps of one call to the driver: begun once, then 1 until it is done. Others may be suspended
 * meanwhile. */
void groups_run_begin(struct groups *g, bool run);
int groups_run_step(struct groups *g);
/* No group runs until it is unpaused, even under groups_run(true). Errors as there. */
int groups_pause(struct groups *g, bool paused);
/* Applies to present and future groups. */
int groups_favour(struct groups *g, enum favour favour);

enum activity {
    ACTIVITY_NEW = 1,       /* GP_PUT has moved since the last poll */
    ACTIVITY_PENDING = 2,   /* the card has not fetched all */
    ACTIVITY_EXECUTING = 4, /* a group is on an engine that executes */
    ACTIVITY_OTHERS = 8,    /* an engine executes another tenant's group */
    ACTIVITY_UNKNOWN = 16,  /* not polled: its groups are being changed */
    ACTIVITY_BY_PUT = 32,   /* a channel does not say what is fetched */
    ACTIVITY_UNSEEN = 64,   /* there is a channel whose work cannot be seen */
    ACTIVITY_VIDEO = 128,   /* a group is on a video engine that executes */
};
/* A set of enum activity for the tenant's channels on one card. */
unsigned int groups_poll(struct groups *g, uint32_t card, const struct engine_status *engine, int engines);
bool groups_any_channel(struct groups *g, uint32_t card);
/* The engines whose work may be its own, as in struct engine_status: of video those that its groups are on.
 */
uint64_t groups_engines(const struct groups *g, uint32_t card);
/* The differences by which the group on the graphics engine may be numbered above one of the tenant's, a bit
 * each up to 31; all of them while the groups are being changed. Other engines are not looked at. */
uint32_t groups_differences(struct groups *g, uint32_t card, const struct engine_status *engine);
#endif
