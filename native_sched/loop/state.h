/* The state of the scheduler's thread, and how other threads wake it. */
#ifndef MGPU_LOOP_STATE_H
#define MGPU_LOOP_STATE_H
#include "events.h"
#include "native_sched/core/sched.h"
#include "native_sched/core/utilization.h"
#include "native_sched/nvidia/boundary/call/call.h"
#include "native_sched/nvidia/channels/groups.h"
#include "stats.h"
#include <stdatomic.h>

enum { LOOP_CARD_TENANTS = 128 };

enum loop_order { LOOP_NOTHING, LOOP_SUSPEND, LOOP_RESUME };

struct loop_entity {
    uint64_t id; /* 0: the slot is free */
    struct groups *groups;
    struct utilization *utilization;
    uint32_t cards;        /* a bit each */
    bool running;          /* resumed, and no suspend was decided since */
    enum loop_order order; /* the thread's own: what it applies now */
    bool begun;
    uint32_t why;
    uint64_t decided_ns;
    bool online;
    /* How long it has been unsuspendable, since its last suspend, and until when; 0: it is not. */
    uint64_t failing_ns, failed_ns;
    enum mgpu_unsuspendable unsuspendable; /* ... for longer than that can be an accident */
    struct {
        bool busy; /* as the core has it */
        uint32_t idle_polls;
        uint32_t claims; /* polls that saw its words alone, since one saw it execute */
        uint64_t idle_since_ns;
        uint64_t run_ns; /* at the last poll */
        bool video;      /* it saw a video engine execute its work */
    } on[MAX_CARDS];
    uint64_t video_ns, video_to_ns; /* of run_ns, with a video engine at work; how far it is counted */
};

/* Times of samples are RM's own. */
struct proof {
    uint64_t since_ns;             /* 0: none is wanted */
    uint64_t read_ns, advanced_ns; /* the last reading; the last that found a new sample */
    uint64_t first_ns, newest_ns;  /* the newest sample at the first reading, and at the last */
    bool idle;
};

/* Groups that the card's firmware has before those that RM tells, and how many polls in a row say so. */
struct numbers {
    uint32_t own, agreeing;
    bool learned;
};

struct loop_card {
    uint64_t next_poll_ns;
    uint16_t tenant[LOOP_CARD_TENANTS]; /* indices into entity */
    uint32_t tenants;
    bool unwatched; /* as the core has it */
    struct proof proof;
    uint64_t unread_ns; /* since when its status is none; 0: it is one */
    struct numbers numbers;
    uint32_t unproven; /* polls that saw work by words alone, before its status has shown any */
};

struct loop {
    const struct mediator *m;
    struct refusals *refusals;
    pthread_t thread;
    pthread_mutex_t active; /* the scheduler's turn: docs/threads.md */
    pthread_mutex_t lock;   /* guards what follows */
    struct sched core;
    struct mgpu_sched_config config;
    struct loop_entity entity[MAX_TENANTS];
    uint32_t entities; /* slots that were ever used */
    struct loop_card card[MAX_CARDS];
    uint32_t shared;                  /* cards with tenants: a bit each */
    uint32_t released_cards;          /* which are not looked at: a bit each */
    uint32_t proven_cards;            /* whose engines' status has shown a tenant's work: a bit each */
    uint32_t blind_cards;             /* whose engines' status is not known: a bit each */
    uint32_t lost_cards;              /* whose status became none while it was read: a bit each */
    uint32_t unsampled_cards;         /* whose utilisation RM does not tell: a bit each */
    uint64_t polled_ns, next_poll_ns; /* next: the earliest of all cards */
    uint16_t ordered[MAX_TENANTS];    /* indices of the entities with an order, in their turn */
    uint32_t orders;
    struct events events;
    uint64_t patience_ns; /* with a tenant that cannot be suspended */
    int kick;             /* eventfd: something has changed */
    atomic_bool stopping, realtime;
    struct loop_stats stats;
};

uint64_t loop_now_ns(void);
void loop_note(struct loop *l, uint64_t at_ns, uint64_t since_ns, uint64_t tenant, uint32_t kind,
               uint32_t card, uint32_t why);
/* There may be new work: the thread polls at once. */
void loop_kick(struct loop *l);
#endif
