/* What the engine library shows to mgpud: structs and numbers of engine/engine.h that other rooms fill. */
#ifndef MGPU_ENGINE_TYPES_H
#define MGPU_ENGINE_TYPES_H
#include <stdint.h>

#define MGPU_API __attribute__((visibility("default")))
enum { MGPU_CARDS_MAX = 32 };

struct mgpu_card {
    uint32_t index, minor, gpu_id, device_instance;
    uint32_t gpu_instance, compute_instance; /* of MIG; UINT32_MAX: it is a card as a whole */
    uint32_t released, unused;               /* released: known from the start, and not asked */
    uint64_t memory_bytes;
    /* Taken for a channel group: of the graphics engine, of a copy engine. */
    uint64_t context_bytes, copy_context_bytes;
    uint8_t uuid[16]; /* by which nvidia-uvm names it; zeros: by none, as an instance */
};
/* One card's memory over all tenants (core/card_memory.h). */
struct mgpu_card_memory {
    uint64_t total_bytes, taken_bytes, used_bytes, unreported_bytes, reclaimable_bytes, demanded_bytes;
    uint32_t demands, restorations;
};
/* The kind of a tenant's memory to the others on its cards: enum memory_kind of core/card_memory.h. */
enum mgpu_memory { MGPU_MEMORY_UNSHARED, MGPU_MEMORY_ONLINE, MGPU_MEMORY_KEPT, MGPU_MEMORY_RECLAIMABLE };
struct mgpu_usage {
    uint64_t cap_bytes, used_bytes, reserved_bytes, peak_bytes;
};
struct mgpu_process {
    int32_t pid; /* in mgpud's pid namespace */
    uint32_t card;
    uint64_t used_bytes;
};
struct mgpu_tenant_state {
    uint32_t listeners, files, objects;
    /* enum mgpu_unsuspendable: it could not be suspended for longer than that can be an accident */
    uint32_t unsuspendable;
    uint32_t refused; /* RM's status, where MGPU_SUSPEND_REFUSED */
    /* Not 0: it holds so much more than it was charged for, and is no longer served. */
    uint64_t unaccounted_bytes;
    uint64_t parked, parked_ns; /* calls that waited for memory, and how long all of them did */
};

enum mgpu_unsuspendable {
    MGPU_SUSPENDABLE,
    MGPU_SUSPEND_HIDDEN,  /* its files are unlocated */
    MGPU_SUSPEND_REFUSED, /* the driver fails to suspend it */
};

enum mgpu_class { MGPU_ONLINE, MGPU_OFFLINE };
/* Why a tenant's work is off the card. */
enum mgpu_why {
    MGPU_WHY_NONE,
    MGPU_WHY_PREEMPTED,
    MGPU_WHY_SLICE,
    MGPU_WHY_QUOTA,
    MGPU_WHY_HOLD,
    MGPU_WHY_IDLE,
    MGPU_WHY_FAILED,   /* the driver refused to resume it: tried again later */
    MGPU_WHY_PAUSED,   /* its container is frozen */
    MGPU_WHY_EVICTION, /* another is evicted from one of its cards */
};

struct mgpu_sched_config {
    uint64_t hold_ns;      /* offline stays off that long after the last online work ended; 0: at once */
    uint64_t poll_fast_ns; /* how often an idle online tenant beside running offline work is polled */
    uint64_t poll_slow_ns; /* ... where nothing is urgent */
    /* online that fetched nothing for so long is idle, where no engine status can be read */
    uint64_t quiet_ns;
    uint64_t off; /* not 0: memory caps only, the cards' own time-slicing; not to be changed later */
};
struct mgpu_sched_state {
    uint32_t enabled, busy, throttled, why; /* 0 or 1, 0 or 1, 0 or 1, enum mgpu_why */
    uint64_t run_ns;                        /* the card's time it was charged for */
    uint64_t suspended_ns;                  /* time off the card with work to do */
    uint64_t preemptions;                   /* by online work */
    uint64_t video_ns;                      /* of run_ns: with a video engine at work, as polls saw it */
};
enum mgpu_sched_kind {
    MGPU_SCHED_ADDED,
    MGPU_SCHED_REMOVED,
    MGPU_SCHED_WORK,      /* was seen to have work on `card` */
    MGPU_SCHED_IDLE,      /* its last work on `card` was seen to have ended at `since_ns` */
    MGPU_SCHED_SUSPEND,   /* decided */
    MGPU_SCHED_SUSPENDED, /* applied: from here on it runs 0 ns */
    MGPU_SCHED_RESUME,    /* decided */
    MGPU_SCHED_RUNNING,   /* applied */
    MGPU_SCHED_DRAIN,     /* it is evicted: from here on it may run beside online, until `since_ns` at most */
    MGPU_SCHED_DRAINED,   /* no longer */
};
struct mgpu_sched_event {
    uint64_t at_ns, since_ns; /* CLOCK_MONOTONIC */
    uint64_t tenant;
    uint32_t kind, card, why, pad; /* card: UINT32_MAX where it is about all of the tenant's */
};

/* What the scheduler does without on a card. */
enum mgpu_without {
    MGPU_WITHOUT_DISABLE_CHANNELS, /* groups are taken off their runlists instead, a call each */
    MGPU_WITHOUT_TIMESLICES,       /* suspension alone */
    MGPU_WITHOUT_GROUP_IDS,        /* what such a group executes counts as another's */
    MGPU_WITHOUT_USERD,            /* a channel without it counts as having work */
    MGPU_WITHOUT_ENGINE_STATUS,    /* online is seen idle by what RM has sampled, else by what is fetched */
    MGPU_WITHOUT_UTILIZATION,      /* and so by what is fetched alone */
    MGPU_WITHOUT_KINDS,
};

/* What is known of a card's chip. */
struct mgpu_chip {
    char name[16], header[32]; /* "": nothing is known of it */
    uint32_t has_get;          /* USERD shows what is fetched, where the class of the channel has the word */
};

/* What mgpu itself refuses a tenant's calls for; what the driver refuses is not counted. */
enum mgpu_refused {
    MGPU_REFUSED_MEMORY,      /* over its cap, or no room is left to keep account of the object */
    MGPU_REFUSED_CARD,        /* a card that it was not granted */
    MGPU_REFUSED_CLASS,       /* a class of objects that is not for tenants */
    MGPU_REFUSED_HANDLE,      /* an object that was not made through the call's file */
    MGPU_REFUSED_SCHEDULING,  /* running or preempting itself */
    MGPU_REFUSED_UNSUPPORTED, /* a call or a control that is not mediated */
    MGPU_REFUSED_FORM,        /* parameters of another size than the call takes */
    /* EPERM: another ABI, a file of another tenant's, a call that escapes accounting */
    MGPU_REFUSED_PERMISSION,
    MGPU_REFUSED_SHARE, /* what only a container that holds its cards alone gets */
    MGPU_REFUSED_KINDS,
};

/* Of the histograms of preemptions and of parked calls; the last bucket has no upper bound. */
enum { MGPU_LATENCY_BUCKETS = 10 };
MGPU_API extern const uint64_t mgpu_latency_bounds_ns[MGPU_LATENCY_BUCKETS - 1];
MGPU_API extern const uint64_t mgpu_parked_bounds_ns[MGPU_LATENCY_BUCKETS - 1];

/* Which bucket of these bounds; what is beyond all is in the last one. */
static inline int mgpu_latency_bucket(const uint64_t *bounds_ns, uint64_t ns)
{
    int i = 0;

    while (i < MGPU_LATENCY_BUCKETS - 1 && ns > bounds_ns[i])
        i++;
    return i;
}

/* Since the engine's start, of tenants that are gone too. */
struct mgpu_stats {
    uint64_t turns, polls; /* of the scheduler's thread; of GPUs for work */
    uint64_t suspend_failures, resume_failures;
    uint64_t preemption[MGPU_LATENCY_BUCKETS], preemption_sum_ns; /* from decided to suspended */
    uint64_t calls;                                               /* mediated */
    uint64_t listeners;                                           /* at present */
    uint64_t refused[MGPU_REFUSED_KINDS];
    /* By card: the driver counted more to a tenant than the ledger. */
    uint64_t audit_mismatches[MGPU_CARDS_MAX];
    uint64_t parked[MGPU_LATENCY_BUCKETS], parked_ns; /* calls of online tenants; how long they waited */
};
struct mgpu_pulse {
    uint64_t turns;      /* of the scheduler's thread, up to now */
    uint64_t serving_ns; /* how long the mediator's longest call at present has taken; 0: there is none */
};
#endif
