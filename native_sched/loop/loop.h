/* The thread that joins the scheduler's core to the cards: it looks for work where the core wants to know, tells the
 * core, and carries its decisions out. One for all cards, so that a tenant over several is suspended in one go. */
#ifndef MGPU_LOOP_H
#define MGPU_LOOP_H
#include "../boundary/mediate.h"
#include "../channels/groups.h"
#include "../core/sched.h"
#include "../core/utilization.h"
#include "events.h"
#include "stats.h"
#include <stdatomic.h>

enum { LOOP_CARD_TENANTS = 128 };

enum loop_order { LOOP_NOTHING, LOOP_SUSPEND, LOOP_RESUME };

struct loop_entity {
    uint64_t id; /* 0: the slot is free */
    struct groups *groups;
    struct utilization *utilization;
    bool running;          /* carried out, and nothing decided against it */
    enum loop_order order; /* is being carried out, by the thread alone */
    bool begun;
    uint32_t why;
    uint64_t decided_ns;
    bool online;
    /* While it could not be suspended: for how long, since it last was, and when that was last so; 0: it can be. */
    uint64_t failing_ns, failed_ns;
    enum mgpu_unsuspendable unsuspendable; /* ... for longer than that can be an accident */
    struct {
        bool busy; /* told to the core */
        uint32_t idle_looks;
        uint64_t idle_since_ns;
        uint64_t run_ns; /* at the last look */
    } on[MAX_CARDS];
};

struct loop_card {
    uint64_t next_look_ns;
    uint16_t tenant[LOOP_CARD_TENANTS]; /* indices into entity */
    uint32_t tenants;
    bool unwatched; /* as the core was told */
};

struct loop {
    const struct mediator *m;
    pthread_t thread;
    pthread_mutex_t active; /* held while the thread looks and acts; taken before `lock` */
    pthread_mutex_t lock;   /* guards what follows */
    struct sched core;
    struct mgpu_sched_config config;
    struct loop_entity entity[MAX_TENANTS];
    uint32_t entities; /* slots that were ever used */
    struct loop_card card[MAX_CARDS];
    uint32_t shared;                  /* cards with tenants: a bit each */
    uint32_t blind_cards;             /* whose engines' status cannot be read: a bit each */
    uint64_t looked_ns, next_look_ns; /* next: the earliest of all cards */
    uint16_t ordered[MAX_TENANTS];    /* indices of the entities with an order, in their turn */
    uint32_t orders;
    struct events events;
    uint64_t patience_ns; /* with a tenant that cannot be suspended */
    int kick;             /* eventfd: something has changed */
    atomic_bool stopping, realtime;
    struct loop_stats stats;
};

int loop_start(struct loop *l, const struct mediator *m);
void loop_stop(struct loop *l);
void loop_configure(struct loop *l, const struct mgpu_sched_config *config);
int loop_card_policy(struct loop *l, uint32_t card, uint32_t policy);
/* Adds the tenant, or changes it. */
int loop_schedule(struct loop *l, const struct sched_entity_config *config, struct groups *groups,
                  struct utilization *utilization);
/* After this the thread touches the tenant's groups no more. */
void loop_forget(struct loop *l, uint64_t id);
/* Its container is frozen, or is no longer. -ENOENT. */
int loop_pause(struct loop *l, uint64_t id, bool paused);
/* Work of the tenant's goes on that ought to rest. */
enum mgpu_unsuspendable loop_unsuspendable(struct loop *l, uint64_t id);
int loop_state(struct loop *l, uint64_t id, struct mgpu_sched_state *out);
/* New work may be to come: look at once. */
void loop_kick(struct loop *l);
#endif
