/* The scheduler's brain: which container may use its cards now. Pure: no syscalls, no allocation, no clock of
 * its own; every instant is the caller's monotonic clock in ns. Events in (work seen and done, orders
 * applied), decisions out. The caller provides the struct and serialises; functions return 0 or a negative
 * errno.
 *
 * The caller's loop: report what happened, then call sched_decide, apply the decisions in the order given,
 * report each outcome (sched_applied, sched_failed), decide again; call it at wake_at at the latest. */
#ifndef MGPU_SCHED_H
#define MGPU_SCHED_H
#include "sched_types.h"
#include <stdbool.h>
#include <stdint.h>

struct sched_config {
    uint64_t hold_ns;          /* offline stays off so long after the last online work; 0: not at all */
    uint64_t offline_slice_ns; /* turns of busy offline entities that share a card */
    uint64_t online_slice_ns;  /* the same for online */
    uint64_t period_ns;        /* fixed-share: the burst is at most the quota's part of it */
    uint64_t linger_ns;        /* an idle offline entity keeps a shared card so long if no other wants it */
    uint64_t wakeup_granularity_ns; /* one that wakes up ends the turn of one that ran so much more */
};

/* hold 100 ms (seeds 000 and 002), slices 10 and 5 ms, period 100 ms, linger 50 ms, granularity 1 ms. */
extern const struct sched_config sched_default_config;

/* What a container is to the scheduler. */
struct sched_entity_config {
    uint64_t id;
    enum sched_class_id class_id;
    uint32_t cards;         /* bit mask, not 0; more than one: a gang, which runs on all or none */
    uint32_t quota_percent; /* of each of its cards, 1..100; native-burst-share ignores it */
};

struct sched_decision {
    uint64_t id;
    bool run; /* false: suspend */
};

/* How often the loop has to poll a card. */
enum sched_watch_level {
    WATCH_NONE, /* nothing to learn: one tenant, and no quota binds it */
    WATCH_SLOW, /* work matters, but may be seen a millisecond late */
    WATCH_FAST, /* online may come while offline is enabled: every moment until it is seen is offline's */
};

struct sched_state {
    bool enabled;   /* by the last order, or else as the loop reported */
    bool confirmed; /* that order was applied */
    bool busy;      /* as far as the card is polled */
    bool throttled;
    enum sched_why why;
    uint64_t run_ns;       /* charged: had work and its cards, switch-in included */
    uint64_t suspended_ns; /* between suspended and resumed */
    uint64_t preemptions;  /* suspended with WHY_PREEMPTED */
    uint64_t vruntime_ns;  /* comparable among those that have work on coupled cards, in one class */
    int64_t budget_ns;     /* fixed-share: may be negative */
};

/* -EINVAL: a slice or the period is 0. */
int sched_init(struct sched *s, const struct sched_config *config, uint64_t now);
int sched_configure(struct sched *s, uint64_t now, const struct sched_config *config);

/* native-burst-share by default. The card's entities go on under it, a gang's once all of its cards have it.
 * -EDQUOT: their quotas come to more than 100. */
int sched_card_policy(struct sched *s, uint32_t card, enum sched_policy_id policy);

/* A new entity is idle, and whether it runs is unknown: the first decision orders it.
 * -EINVAL: bad cards, quota or class, or cards of different policies; -EEXIST; -ENOSPC: 1024 are there;
 * -EDQUOT: the quotas of this class on one of the cards would pass 100. */
int sched_add(struct sched *s, uint64_t now, const struct sched_entity_config *config);

/* Class, quota and cards of a live entity; its work on cards it keeps stays known. Errors as above, -ENOENT;
 * nothing changes then. */
int sched_change(struct sched *s, uint64_t now, const struct sched_entity_config *config);

/* The container is gone, and so are its channels: its cards are free at once. Online work ends now. */
int sched_remove(struct sched *s, uint64_t now, uint64_t id);

/* The container is frozen, or is no longer. While it is, it is never enabled, and its online work keeps no
 * other off, since it can neither submit nor be waited for. Its work goes on to be reported and holds again
 * afterwards. Repeating a call is harmless. -ENOENT. */
int sched_pause(struct sched *s, uint64_t now, uint64_t id, bool paused);

/* The container is evicted: until that instant it is enabled even where online has work, so that what it has
 * submitted completes, and no other offline one is on its cards. Online is not suspended for it. 0: no
 * longer. -ENOENT; -EINVAL for online. */
int sched_drain(struct sched *s, uint64_t now, uint64_t id, uint64_t until);

/* The entity has work on the card, or has none; `since` is the earliest instant from which that held. Busy is
 * as the caller reports it: nothing here infers it. Repeating a report is harmless. -ENOENT, -EINVAL. */
int sched_work_seen(struct sched *s, uint64_t now, uint64_t id, uint32_t card, uint64_t since);
int sched_work_done(struct sched *s, uint64_t now, uint64_t id, uint32_t card, uint64_t since);

/* Writes up to max decisions, suspends first: only changes, and never one that is under way. A suspend may
 * follow while the same entity's resume is under way, never the other way round. True: there are more, call
 * again. wake_at: when to call again if nothing happens; UINT64_MAX: never. */
bool sched_decide(struct sched *s, uint64_t now, struct sched_decision *out, uint32_t max, uint32_t *n,
                  uint64_t *wake_at);

/* The order was applied: the entity runs, or is suspended, on all of its cards since `at`. -ENOENT. */
int sched_applied(struct sched *s, uint64_t at, uint64_t id, bool running);

/* The order to run (running) or to suspend failed. After a failed suspend the entity counts as running and is
 * suspended again after a pause that grows; after a failed resume it may run on some of its cards, so it is
 * suspended first and resumed after such a pause. -ENOENT. */
int sched_failed(struct sched *s, uint64_t at, uint64_t id, bool running);

/* As of the last decision. */
enum sched_watch_level sched_watch(const struct sched *s, uint32_t card);

/* The loop polls the card for work, or not: it may leave that where sched_watch() says WATCH_NONE. Time
 * without polls is charged to no entity, and afterwards an entity counts as busy as before it. */
void sched_watched(struct sched *s, uint64_t now, uint32_t card, bool watched);

/* run_ns of sched_state() as it is at `now`; 0 for an unknown id. */
uint64_t sched_run_ns(const struct sched *s, uint64_t id, uint64_t now);
/* The most that the entity gets of its cards' time, in percent: its binding quota, else 100. */
uint32_t sched_most_percent(const struct sched *s, uint64_t id);

/* Times as of the last event; vruntime_ns and budget_ns as of the last decision about its cards. -ENOENT. */
int sched_state(const struct sched *s, uint64_t id, struct sched_state *out);
#endif
