/* The channel groups and channels of one tenant, as the scheduler sees them: what is suspended and resumed as one,
 * and where work is looked for. The mediator tells what is made and freed, the scheduler's thread runs and looks.
 *
 * A group runs when its tenant has asked for it (GPFIFO_SCHEDULE) and the scheduler lets the tenant run. The lock is
 * held over a driver's call, so that what is recorded is what the driver did; it is taken last, after the tenant's. */
#ifndef MGPU_GROUPS_H
#define MGPU_GROUPS_H
#include "../driver/driver.h"
#include "refusals.h"
#include <pthread.h>

/* A tenant beyond these is refused its next one. SUSPEND_CALLS_MAX: of the driver, to suspend what it has on one card. CUDA
 * 12.5 makes 4 groups and 20 channels for each context on Turing (recording): 16 of its processes where channels are disabled,
 * 4 where each group takes a call. */
enum { GROUPS_MAX = 256, CHANNELS_MAX = 1024, SUSPEND_CALLS_MAX = 16 };

/* In the driver, as far as we have brought it; what an earlier worker left is not known. */
enum driven { DRIVEN_UNKNOWN, DRIVEN_ON, DRIVEN_OFF, DRIVEN_STATES };

/* The groups of one client on one card: their channels are disabled together. */
struct bulk {
    uint32_t client, card;
    uint32_t subdevice; /* one of the client's, of that card; 0: it had none, and each group takes a call */
    uint32_t groups, channels;
};

struct group {
    struct rm_target name;
    uint32_t card, tsg_id; /* tsg_id NO_TSG: nobody knows it, and what it executes counts as another's */
    uint32_t bulk;         /* index */
    uint32_t engine_type;  /* as its maker said; 0: the only one there is */
    bool copies;           /* on a copy engine */
    bool live;
    bool wanted;                      /* by its tenant */
    enum driven runlist;              /* by GPFIFO_SCHEDULE */
    bool making;                      /* a channel of it is being made, whose handle is not known yet */
    uint32_t channels[DRIVEN_STATES]; /* its channels, by their state */
    uint32_t failed;                  /* in that pass */
    uint32_t stopped;                 /* of its channels by its tenant */
    uint64_t timeslice_us;     /* what the tenant set and is told, whatever the group has; 0: nothing */
    uint64_t has_timeslice_us; /* what the group was to have, last; 0: the driver's own */
};

struct channel {
    struct userd userd; /* at: NULL, it has none of its own and takes no work, or it is blind */
    uint32_t client, handle;
    uint32_t card;
    uint32_t group; /* index */
    uint32_t seen_put;
    enum driven state; /* by DISABLE_CHANNELS */
    bool stopped;      /* by its tenant */
    bool blind;        /* its USERD cannot be read: for all that is known it has work */
    bool live;
};

/* What the hardware's own time-slicing does to the tenant's groups, before anybody has seen any work. */
enum favour { FAVOUR_NONE, FAVOUR_FIRST, FAVOUR_LAST };

struct groups {
    pthread_mutex_t lock;
    const struct driver_ops *ops;
    struct driver *driver;
    struct refusals *refusals; /* of all tenants */
    struct group *group;
    struct channel *channel;
    struct bulk *bulk;
    uint32_t groups, channels, bulks;  /* slots that were ever used */
    uint32_t live_channels[MAX_CARDS]; /* that may take work */
    enum favour favour;
    bool running;
    bool unsure; /* there may be channels in its groups that are not here: groups are taken off as a whole */
    bool paused; /* where nothing is scheduled; else the scheduler does not let it run */
    uint32_t pass;                   /* over all groups, numbered; each fails once in it */
    int error;                       /* of the pass: the last */
    _Atomic uint32_t suspend_status; /* RM's, of the last suspend that it refused; 0: it failed without one */
    int kick;                        /* eventfd: written when there is a new place to look for work */
};

int groups_init(struct groups *g, const struct driver_ops *ops, struct driver *driver,
                struct refusals *refusals, int kick);
void groups_destroy(struct groups *g);

/* A group that the driver has just made. subdevice: as in struct bulk. -ENOSPC; what the driver says. */
int groups_add(struct groups *g, const struct rm_target *name, uint32_t card, uint32_t engine_type,
               uint32_t subdevice);
/* A channel is about to be made in the group: until it has been added, or was not made, only the group as a whole can be
 * suspended. -ESRCH: no such group; what the driver says. It must not be made then. */
int groups_channel_begins(struct groups *g, uint32_t client, uint32_t group);
void groups_channel_ends(struct groups *g, uint32_t client, uint32_t group);
/* -ENOSPC; -ESRCH: no such group; what the driver says. */
int groups_add_channel(struct groups *g, const struct rm_target *name, uint32_t group);
/* What an earlier worker knew, groups before their channels, with what the tenant has said of them. What the driver makes
 * of them is settled by the next groups_run(); those that the driver says nothing of, as on a lost card, are kept and tried
 * again then. -ENOSPC; -ESRCH: no such group. */
int groups_recover(struct groups *g, const struct rm_target *name, const struct rm_object *obj,
                   uint32_t subdevice);
int groups_recover_channel(struct groups *g, const struct rm_target *name, const struct rm_object *obj,
                           uint32_t group);
/* One that is gone: of either kind or of none. */
void groups_forget(struct groups *g, uint32_t client, uint32_t handle);
/* Is the object a subdevice by which groups are suspended? */
bool groups_need(struct groups *g, uint32_t client, uint32_t subdevice);

/* The tenant's own scheduling calls on one of its groups. -ESRCH: it has no such group. */
int groups_want(struct groups *g, uint32_t client, uint32_t handle, bool wanted);
/* Its own DISABLE_CHANNELS. A group rests once its tenant has stopped all that it has: while one of them may run, the others'
 * work is its tenant's to withhold. -ESRCH, and nothing is done: one of them is not here. */
int groups_stop(struct groups *g, const uint32_t *client, const uint32_t *channel, uint32_t channels,
                bool stop);
/* What is suspended at present is suspended so when this returns 0. */
int groups_unsure(struct groups *g, bool unsure);
int groups_set_timeslice(struct groups *g, uint32_t client, uint32_t handle, uint64_t timeslice_us);
int groups_get_timeslice(struct groups *g, uint32_t client, uint32_t handle, uint64_t *timeslice_us);

/* Suspends or resumes all of the tenant's groups. Suspended means off the engine when this returns 0, or off the runlist where
 * the driver disables no channels; a failure leaves some as they were, and the next call tries them again. */
int groups_run(struct groups *g, bool run);
/* RM's status of the last suspend that it refused; 0: none. */
uint32_t groups_suspend_status(const struct groups *g);
/* The same in steps of one call to the driver: begun once, then 1 until it is done. Others may be suspended meanwhile. */
void groups_run_begin(struct groups *g, bool run);
int groups_run_step(struct groups *g);
/* None runs before it is unpaused, whatever groups_run() says. Errors as there. */
int groups_pause(struct groups *g, bool paused);
/* For the groups there are and those to come. */
int groups_favour(struct groups *g, enum favour favour);

enum activity {
    ACTIVITY_NEW = 1,       /* GP_PUT has moved since the last look */
    ACTIVITY_PENDING = 2,   /* the card has not fetched all */
    ACTIVITY_EXECUTING = 4, /* a group is on an engine that executes */
    ACTIVITY_OTHERS = 8,    /* an engine executes another tenant's group */
    ACTIVITY_UNKNOWN = 16,  /* not looked at: its groups are being changed */
};
/* A set of enum activity for the tenant's channels on one card. */
unsigned int groups_look(struct groups *g, uint32_t card, const struct engine_status *engine, int engines);
bool groups_any_channel(struct groups *g, uint32_t card);
#endif
