/* The members of struct sched, so that the caller can provide it; only core/ uses them. */
#ifndef MGPU_SCHED_TYPES_H
#define MGPU_SCHED_TYPES_H
#include <stdbool.h>
#include <stdint.h>

enum { SCHED_ENTITIES = 1024, SCHED_CARDS = 32, SCHED_BUCKETS = 1024 };
enum sched_class_id { SCHED_ONLINE, SCHED_OFFLINE, SCHED_CLASSES };
enum sched_policy_id {
#define POLICY(id, object, name) id,
#include "policies.def"
#undef POLICY
    SCHED_POLICIES
};

/* The first of a set of cards, which has a bit for each. */
static inline uint32_t first_card(uint32_t cards)
{
    return (uint32_t)__builtin_ctz(cards);
}

#define for_each_card(card, cards)                                                                    \
    for (uint32_t left_##card = (cards), card; left_##card && (card = first_card(left_##card), true); \
         left_##card &= left_##card - 1)

struct sched_class;
struct sched_policy;

/* Why an entity is not enabled. */
enum sched_why {
    WHY_NONE,      /* it is enabled, or about to be */
    WHY_PREEMPTED, /* online has work on one of its cards, or another's turn cut its own short */
    WHY_HOLD,      /* online has had work there less than hold_ns ago */
    WHY_QUOTA,     /* fixed-share: used up */
    WHY_SLICE,     /* another has its turn */
    WHY_IDLE,      /* offline without work on a card that others use */
    WHY_FAILED,    /* the driver refused to resume it: tried again later */
    WHY_PAUSED,    /* its container is frozen */
    WHY_EVICTION,  /* another is evicted from one of its cards */
};

enum entity_known { KNOWN_NOTHING, KNOWN_SUSPENDED, KNOWN_RUNNING };
enum entity_order { ORDER_NONE, ORDER_RUN, ORDER_SUSPEND };

/* Times of one kind of order that the driver refused. */
struct backoff {
    uint64_t retry_at;
    uint32_t failures;
};

/* An interval in which an entity with work had its cards. Open while it lasts; what came later than its end
 * turned out to be is given back. */
struct charge {
    bool open;
    uint64_t from, to;
    uint64_t least;    /* `from` is no earlier */
    uint64_t vruntime; /* at `from` */
};

struct entity {
    uint64_t id;
    const struct sched_class *class;
    const struct sched_policy *policy;
    uint32_t cards, quota;
    uint32_t busy; /* cards where it has work */
    bool paused;
    uint64_t drain_until; /* while it is evicted, it runs until then; 0: it is not */

    /* The order that the loop has, and what it reported last. */
    enum entity_known known;
    enum entity_order order;
    struct backoff resume, suspend;

    uint64_t vruntime; /* ns times 100 / weight; wraps, so differences only */
    struct charge charge;
    int64_t budget;       /* fixed-share, in hundredths of a ns: percent times ns is exact */
    uint64_t refilled_at; /* the budget is that of this instant */

    uint64_t slice_end;      /* 0: no turn; UINT64_MAX: a turn that begins when the resume is confirmed */
    uint64_t slice_vruntime; /* when the turn began */
    uint64_t enabled_at;     /* when it was last ordered to run */
    uint64_t idle_since;     /* the latest end of work */
    bool waking;             /* became busy since the last decision */

    /* The plan that the last decision made. */
    bool wanted, chosen, sticky;
    uint8_t why; /* enum sched_why */
    uint64_t key;

    uint64_t run_ns, suspended_ns, suspended_at, preemptions;

    uint16_t next[SCHED_CARDS]; /* the run queues' links, slot numbers, 0 = end */
    uint16_t hash_next;         /* also links free slots */
};

/* One card's run queues. */
struct rq {
    enum sched_policy_id policy;
    uint8_t watch;                   /* enum sched_watch_level */
    uint16_t members[SCHED_CLASSES]; /* slot numbers by rising id */
    uint16_t nr[SCHED_CLASSES];
    uint16_t online_busy; /* online entities with work here */
    bool online_ended;    /* online work has ended here, at online_end */
    bool unwatched;       /* not polled: work is as it was before, and nothing is charged */
    uint64_t online_end;
    uint64_t min_vruntime[SCHED_CLASSES]; /* of those with work, as of when some last had it */
    uint32_t domain;                      /* this card and all that gangs couple to it */
    uint64_t wake_at;                     /* of the domain, kept at its lowest card */
};

struct sched {
    uint64_t hold_ns, slice_ns[SCHED_CLASSES], period_ns, linger_ns, wakeup_granularity_ns;
    uint64_t now;     /* the latest instant heard of */
    uint32_t dirty;   /* cards where something has happened since the last decision */
    uint64_t wake_at; /* the earliest of all cards', as of the last decision */
    struct rq rq[SCHED_CARDS];
    struct entity entity[SCHED_ENTITIES + 1]; /* [0] is none */
    uint16_t bucket[SCHED_BUCKETS], free;
    struct entity *queue[SCHED_ENTITIES]; /* room for one decision's candidates */
};
#endif
