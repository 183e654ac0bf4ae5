/* The structs of a tenant's channel groups; groups.h has the functions. */
#ifndef MGPU_GROUP_TYPES_H
#define MGPU_GROUP_TYPES_H
#include "ids.h"
#include "native_sched/nvidia/driver/driver.h"
#include "refusals.h"
#include <pthread.h>

/* A tenant beyond these is refused its next one. SUSPEND_CALLS_MAX: of the driver, to suspend what it has on
 * one card. CUDA 12.5 makes 4 groups and 20 channels for each context on Turing (recording): 16 of its
 * processes where channels are disabled, 4 where each group takes a call. */
enum { GROUPS_MAX = 256, CHANNELS_MAX = 1024, SUSPEND_CALLS_MAX = 16 };

/* The state in the driver, as far as we set it; what the previous mgpud set is unknown. */
enum driven { DRIVEN_UNKNOWN, DRIVEN_ON, DRIVEN_OFF, DRIVEN_STATES };

/* The groups of one client on one card: their channels are disabled together. */
struct bulk {
    uint32_t client, card;
    uint32_t subdevice; /* one of the client's, of that card; 0: it had none, and each group takes a call */
    uint32_t groups, channels;
};

struct group {
    struct rm_target name;
    uint32_t card, tsg_id; /* tsg_id NO_TSG: unknown, and its work counts as another's */
    uint32_t bulk;         /* index */
    uint32_t engine_type;  /* as its maker said; 0: the only one there is */
    bool copies;           /* on a copy engine */
    bool live;
    bool wanted;                      /* by its tenant */
    enum driven runlist;              /* by GPFIFO_SCHEDULE */
    bool ran;                         /* it was put on it at some time */
    bool making;                      /* a channel is being made in it, whose handle is not known yet */
    uint32_t channels[DRIVEN_STATES]; /* its channels, by their state */
    uint32_t failed;                  /* in that pass */
    uint32_t stopped;                 /* of its channels by its tenant */
    uint64_t timeslice_us;            /* as its tenant set it and reads it back; 0: never set */
    uint64_t has_timeslice_us;        /* as we set it last; 0: the driver's own */
    bool recovered;                   /* of the previous mgpud: its tsg_id has not been asked yet */
};

struct channel {
    struct userd userd; /* at: NULL, it has none of its own and takes no work, or it is blind */
    struct userd_place place;
    uint32_t client, handle;
    uint32_t card;
    uint32_t group; /* index */
    uint32_t seen_put;
    enum driven state; /* by DISABLE_CHANNELS */
    bool stopped;      /* by its tenant */
    bool blind;        /* its USERD cannot be read: for all that is known it has work */
    bool recovered;    /* of the previous mgpud: and has not been mapped yet */
    bool live;
};

/* How the hardware's own time-slicing treats the tenant's groups, before a poll has seen any work. */
enum favour { FAVOUR_NONE, FAVOUR_FIRST, FAVOUR_LAST, FAVOUR_EVEN };

struct groups {
    pthread_mutex_t lock;
    const struct driver_ops *ops;
    struct driver *driver;
    struct refusals *refusals; /* of all tenants */
    struct ids *ids;           /* likewise */
    struct group *group;
    struct channel *channel;
    struct bulk *bulk;
    uint32_t groups, channels, bulks;  /* slots that were ever used */
    uint32_t live_channels[MAX_CARDS]; /* that may take work */
    uint64_t video[MAX_CARDS];         /* video engines that a group is on, as in struct engine_status */
    enum favour favour;
    bool running;
    bool recovered;   /* something may be that has not been asked yet */
    bool unconfirmed; /* there may be channels in its groups that are not here: groups are taken off as a
                         whole */
    bool paused;      /* where nothing is scheduled; else the scheduler does not let it run */
    uint32_t pass;    /* over all groups, numbered; each fails once in it */
    int error;        /* of the pass: the last */
    _Atomic uint32_t suspend_status; /* RM's, of the last suspend that it refused; 0: it failed without one */
    int kick;                        /* eventfd: written when there is a new channel to poll */
};
#endif
