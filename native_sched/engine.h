/* The arbiter's native engine as one plain C ABI: what mgpud loads. Every function is thread safe, returns 0
 * or a positive value, or a negative errno, and none needs the interpreter: ioctls are served by the engine's
 * own threads. Sizes in bytes. */
#ifndef MGPU_ENGINE_H
#define MGPU_ENGINE_H
#include <stdint.h>

#define MGPU_API __attribute__((visibility("default")))
enum { MGPU_ENGINE_ABI = 8, MGPU_CARDS_MAX = 32 };

struct mgpu_engine;

struct mgpu_card {
    uint32_t index, minor, gpu_id, device_instance;
    uint32_t gpu_instance, compute_instance; /* of MIG; UINT32_MAX: it is a card as a whole */
    uint64_t memory_bytes;
    uint64_t context_bytes,
        copy_context_bytes; /* taken for a channel group: of the graphics engine, of a copy engine */
};
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
    uint32_t
        unsuspendable; /* enum mgpu_unsuspendable: it could not be suspended for longer than that can be an accident */
    uint32_t refused; /* RM's status, where MGPU_SUSPEND_REFUSED */
    uint64_t
        unaccounted_bytes; /* not 0: caught with so much more than it was charged for; it is served no more */
};

enum mgpu_unsuspendable {
    MGPU_SUSPENDABLE,
    MGPU_SUSPEND_HIDDEN,  /* it keeps its files where nobody finds them */
    MGPU_SUSPEND_REFUSED, /* the driver fails to suspend it */
};

enum mgpu_class { MGPU_ONLINE, MGPU_OFFLINE };
enum mgpu_policy { MGPU_NATIVE_BURST_SHARE, MGPU_FIXED_SHARE, MGPU_GUARANTEED_BURST_SHARE };
/* Why a tenant's work is off the card. */
enum mgpu_why {
    MGPU_WHY_NONE,
    MGPU_WHY_PREEMPTED,
    MGPU_WHY_SLICE,
    MGPU_WHY_QUOTA,
    MGPU_WHY_HOLD,
    MGPU_WHY_IDLE,
    MGPU_WHY_FAILED, /* the driver refused to resume it: tried again later */
    MGPU_WHY_PAUSED, /* its container is frozen */
};

struct mgpu_sched_config {
    uint64_t hold_ns;      /* offline stays off that long after the last online work ended; 0: at once */
    uint64_t poll_fast_ns; /* how often an idle online tenant beside running offline work is looked at */
    uint64_t poll_slow_ns; /* ... where nothing is urgent */
    uint64_t
        quiet_ns; /* online that has had nothing to fetch for so long is idle, where nobody can see what engines execute */
    uint64_t off; /* not 0: memory caps only, the cards' own time-slicing; not to be changed later */
};
struct mgpu_sched_state {
    uint32_t enabled, busy, throttled, why; /* 0 or 1, 0 or 1, 0 or 1, enum mgpu_why */
    uint64_t run_ns;                        /* the card's time it was charged for */
    uint64_t suspended_ns;                  /* time off the card with work to do */
    uint64_t preemptions;                   /* by online work */
};
enum mgpu_sched_kind {
    MGPU_SCHED_ADDED,
    MGPU_SCHED_REMOVED,
    MGPU_SCHED_WORK,      /* was seen to have work on `card` */
    MGPU_SCHED_IDLE,      /* its last work on `card` was seen to have ended at `since_ns` */
    MGPU_SCHED_SUSPEND,   /* decided */
    MGPU_SCHED_SUSPENDED, /* carried out: from here on it runs 0 ns */
    MGPU_SCHED_RESUME,    /* decided */
    MGPU_SCHED_RUNNING,   /* carried out */
};
struct mgpu_sched_event {
    uint64_t at_ns, since_ns; /* CLOCK_MONOTONIC */
    uint64_t tenant;
    uint32_t kind, card, why, pad; /* card: UINT32_MAX where it is about all of the tenant's */
};

MGPU_API uint32_t mgpu_engine_abi(void);

/* driver: "nvidia" or "sim". dir: the simulated driver's socket folder. version: of the running driver, or of one that it is to be taken for.
 * journal: the folder where what is needed is written for the engine that comes after this one has been killed (the caller
 * sees to it that there is one at a time); NULL: nowhere.
 * -ENOENT: no such driver or folder; -EPROTONOSUPPORT: no such version; -EPROTO: a journal in a layout that is not ours. */
MGPU_API int mgpu_engine_open(const char *driver, const char *dir, const char *version, const char *journal,
                              struct mgpu_engine **out);
/* The driver versions that are known, for people to read: branches and their first versions. */
MGPU_API const char *mgpu_rm_known(void);
/* What mgpu_engine_rm_table() would say of that version. -EPROTONOSUPPORT: no known one. */
MGPU_API int mgpu_rm_row(const char *version);
/* The version at which the newest of the sizes in use appeared: major << 16 | minor. */
MGPU_API uint32_t mgpu_engine_rm_table(const struct mgpu_engine *e);
MGPU_API void mgpu_engine_close(struct mgpu_engine *e);

/* What the driver takes of a card by itself for a channel group of the graphics engine, or with `copies` of a copy engine:
 * measured, by making some. To be asked while nobody uses the card. -ENOSYS: this driver says it otherwise. */
MGPU_API int mgpu_engine_context_bytes(struct mgpu_engine *e, uint32_t minor, uint32_t copies, uint64_t *out);

/* All cards before the first listener. */
MGPU_API int mgpu_engine_add_card(struct mgpu_engine *e, const struct mgpu_card *card);

/* Readable when something ended: a listener, an open file, a look that a tenant was not removed for. Read 8 bytes to
 * reset it. */
MGPU_API int mgpu_engine_event_fd(const struct mgpu_engine *e);
/* 0 once the driver's event stream is lost. */
MGPU_API int mgpu_engine_driver_alive(const struct mgpu_engine *e);

/* 1: taken over from the journal, with what it has and is charged. Its grants and nodes, and how it is scheduled, are to be
 * said again; a cap may be below what it has. -ENOSPC: no room, for tenants or in the journal. An earlier engine's that cannot
 * be taken over is unknown to all but mgpu_tenant_remove(): its journal stays for the next engine, and its files are nobody
 * else's. */
MGPU_API int mgpu_tenant_add(struct mgpu_engine *e, uint64_t id);
/* All tenants and listeners that are to go on have been added: what others left in the journal is forgotten. How much. */
MGPU_API int mgpu_recovered(struct mgpu_engine *e);
/* -EEXIST: it was granted another MIG instance of the same card. */
MGPU_API int mgpu_tenant_grant(struct mgpu_engine *e, uint64_t id, uint32_t card, uint64_t cap_bytes);
/* kind: 0 control, 1 card, 2 UVM. (dev, ino): identity of the node inside the container. */
MGPU_API int mgpu_tenant_add_node(struct mgpu_engine *e, uint64_t id, uint64_t dev, uint64_t ino,
                                  uint32_t kind, uint32_t minor);
MGPU_API int mgpu_tenant_usage(struct mgpu_engine *e, uint64_t id, uint32_t card, struct mgpu_usage *out);
MGPU_API int mgpu_tenant_processes(struct mgpu_engine *e, uint64_t id, struct mgpu_process *out,
                                   uint32_t max);
MGPU_API int mgpu_tenant_state(struct mgpu_engine *e, uint64_t id, struct mgpu_tenant_state *out);
/* -EBUSY while a listener or an open file remains, or it is being looked at: to be tried again when the event
 * descriptor is readable. */
MGPU_API int mgpu_tenant_remove(struct mgpu_engine *e, uint64_t id);

/* Before the first tenant, and live. */
MGPU_API int mgpu_sched_configure(struct mgpu_engine *e, const struct mgpu_sched_config *config);
MGPU_API int mgpu_card_policy(struct mgpu_engine *e, uint32_t card, uint32_t policy);
/* The tenant's class and its share of each of its cards, 1 to 100. The first call, after its grants, hands it to the
 * scheduler; its channels do not run before. */
MGPU_API int mgpu_tenant_schedule(struct mgpu_engine *e, uint64_t id, uint32_t class, uint32_t quota_percent);
/* Its container is frozen (1), or is no longer (0): its work is suspended meanwhile, and keeps nobody off. -ENOENT also
 * before the first mgpu_tenant_schedule(). */
MGPU_API int mgpu_tenant_pause(struct mgpu_engine *e, uint64_t id, uint32_t paused);
MGPU_API int mgpu_tenant_sched(struct mgpu_engine *e, uint64_t id, struct mgpu_sched_state *out);
/* What happened since event number `since`, oldest first: how many are in `out`; *next is the number to go on with,
 * *lost how many were forgotten in between. */
MGPU_API int mgpu_sched_events(struct mgpu_engine *e, uint64_t since, struct mgpu_sched_event *out,
                               uint32_t max, uint64_t *next, uint64_t *lost);
/* What the scheduler does without on a card. */
enum mgpu_without {
    MGPU_WITHOUT_DISABLE_CHANNELS, /* groups are taken off their runlists instead, a call each */
    MGPU_WITHOUT_TIMESLICES,       /* suspension alone */
    MGPU_WITHOUT_GROUP_IDS,        /* what such a group executes counts as another's */
    MGPU_WITHOUT_USERD,            /* a channel without it counts as having work */
    MGPU_WITHOUT_ENGINE_STATUS,    /* online is seen idle by what its channels have fetched alone */
    MGPU_WITHOUT_KINDS,
};
/* out: MGPU_WITHOUT_KINDS. 0: nothing was refused; above 0: the status that RM first refused it with; below: an errno. A first
 * refusal makes the event descriptor readable. */
MGPU_API int mgpu_card_without(struct mgpu_engine *e, uint32_t card, int32_t *out);

/* 1 when the scheduler's thread runs under SCHED_FIFO. */
MGPU_API int mgpu_sched_realtime(const struct mgpu_engine *e);

/* Serves the seccomp listener fd as this tenant; the engine owns fd from here on, also on failure. holder_id: the listener's
 * number, never another's: a call of it that an earlier engine had received and not answered is answered first (1). */
MGPU_API int mgpu_listener_add(struct mgpu_engine *e, uint64_t id, int fd, uint64_t holder_id);

/* What mgpu itself refuses a tenant's calls for; what the driver refuses is not counted. */
enum mgpu_refused {
    MGPU_REFUSED_MEMORY,      /* over its cap, or no room is left to keep account of the object */
    MGPU_REFUSED_CARD,        /* a card that it was not granted */
    MGPU_REFUSED_CLASS,       /* a class of objects that is not for tenants */
    MGPU_REFUSED_HANDLE,      /* an object that was not made through the call's file */
    MGPU_REFUSED_SCHEDULING,  /* running or preempting itself */
    MGPU_REFUSED_UNSUPPORTED, /* a call or a control that is not mediated */
    MGPU_REFUSED_FORM,        /* parameters of another size than the call takes */
    MGPU_REFUSED_PERMISSION, /* EPERM: another ABI, a file of another tenant's, a call that escapes accounting */
    MGPU_REFUSED_KINDS,
};

/* Of the histogram of preemptions; the last bucket has no upper bound. */
enum { MGPU_LATENCY_BUCKETS = 10 };
MGPU_API extern const uint64_t mgpu_latency_bounds_ns[MGPU_LATENCY_BUCKETS - 1];

/* Since the engine's start, of tenants that are gone too. */
struct mgpu_stats {
    uint64_t turns, looks; /* of the scheduler's thread, and at cards for work */
    uint64_t suspend_failures, resume_failures;
    uint64_t preemption[MGPU_LATENCY_BUCKETS], preemption_sum_ns; /* from decided to suspended */
    uint64_t calls;                                               /* mediated */
    uint64_t listeners;                                           /* at present */
    uint64_t refused[MGPU_REFUSED_KINDS];
    uint64_t
        audit_mismatches[MGPU_CARDS_MAX]; /* by card: the driver counted more to a tenant than the ledger */
};
struct mgpu_pulse {
    uint64_t turns;      /* of the scheduler's thread, up to now */
    uint64_t serving_ns; /* how long the mediator's longest call at present has taken; 0: there is none */
};
MGPU_API int mgpu_engine_stats(struct mgpu_engine *e, struct mgpu_stats *out);
/* Has the scheduler's thread turn once more: one that has not by the next pulse is stuck. Waits for no lock. */
MGPU_API int mgpu_engine_pulse(struct mgpu_engine *e, struct mgpu_pulse *out);
/* out: MGPU_REFUSED_KINDS counts. */
MGPU_API int mgpu_tenant_refused(struct mgpu_engine *e, uint64_t id, uint64_t *out);
#endif
