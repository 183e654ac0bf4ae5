/* A model of cards, tenants and the arbiter's loop in virtual time, to drive the scheduler with: it carries
 * decisions out with delays, lets tenants submit and finish work, tells the scheduler what a loop would see
 * and when, and checks after every step what must always hold. Its randomness comes from the choices it is
 * given and from each tenant's id, never from the order of calls. */
#ifndef SCHED_SIM_H
#define SCHED_SIM_H
#include "../../../native_sched/core/sched.h"

enum { SIM_TENANTS = 64, SIM_EVENTS = 1 << 15, SIM_DECISIONS = 1 << 12 };

#define ENDLESS       UINT64_MAX
#define NSEC_PER_USEC 1000ull
#define NSEC_PER_MSEC 1000000ull

struct span {
    uint64_t min_ns, max_ns;
};

struct sim_options {
    struct span order;     /* from a decision until it has taken effect */
    struct span confirm;   /* until the scheduler hears of that */
    struct span detect;    /* until work, or its end, is seen */
    uint64_t starve_ns;    /* none that may run waits longer; 0: not checked */
    uint32_t fail_percent; /* of orders */
    uint32_t decide_max;   /* room for decisions in one call */
};

/* What a tenant does on one card: bursts that need so much of the card, and pauses. */
struct stream {
    uint64_t work_ns, pause_ns; /* on average; work_ns ENDLESS: always, 0: never */
    uint64_t remaining_ns, tell_at;
    uint32_t generation;
    bool has_work, told;
    bool held_back; /* what it would have submitted while it was paused */
};

enum sim_order { SIM_NONE, SIM_RUN, SIM_SUSPEND };

struct tenant {
    struct sched_entity_config is;
    enum sched_policy_id policy;
    bool live, ever_ordered, wanted; /* wanted: the last decision */
    bool running;                    /* in truth */
    bool failed;                     /* its last order failed */
    bool paused;                     /* frozen: submits nothing; what it has submitted goes on */
    uint32_t pending;                /* orders under way */
    uint64_t effect_at, ordered_at, rng;
    uint64_t waits; /* since when, or UINT64_MAX */
    uint32_t incarnation, sequence;
    struct stream stream[SCHED_CARDS];

    uint64_t run_ns;  /* on its cards with work */
    uint64_t slot_ns; /* the same, switch-in included */
    uint64_t open_ns; /* its class was open */
    uint64_t switches;

    /* Over every window of the run: how far the share of the open time was exceeded or missed, in millionths
     * of a ns. */
    uint64_t share_ppm;
    int64_t excess, excess_low, excess_worst, deficit_high, deficit_worst;
    uint64_t burst_ns; /* fixed-share: what a window may have above its quota */
};

struct event {
    uint64_t at;
    enum event_kind { DETECT, EFFECT, TOLD, SUBMIT, FINISH } kind;
    uint32_t tenant, card, generation, sequence;
    bool run, failed;
    uint64_t since; /* when what is told began */
};

struct sim_decision {
    uint64_t at, id;
    uint32_t run;
};

struct sim_report {
    uint64_t run_ns, slot_ns, open_ns, switches;
    int64_t excess_ns, deficit_ns; /* in the worst window */
};

struct sim {
    struct sched sched; /* first: a pointer to it is one to the scheduler */
    struct sched_config config;
    struct sim_options options;
    uint64_t now, wake_at, events_done, decided, salt;
    struct tenant tenant[SIM_TENANTS];
    uint32_t tenants;
    enum sched_policy_id policy[SCHED_CARDS];
    uint64_t online_end[SCHED_CARDS]; /* as told; 0: none */
    struct event heap[SIM_EVENTS];
    uint32_t heaped;
    struct sim_decision log[SIM_DECISIONS];
    uint64_t logged;
    char error[256]; /* what did not hold, first of all */
};

struct sim *sim_new(const struct sched_config *config, const struct sim_options *options);
void sim_free(struct sim *m);
int sim_policy(struct sim *m, uint32_t card, enum sched_policy_id policy);
/* On every card of the mask the same work; -ENOSPC and what sched_add says. */
int sim_add(struct sim *m, uint64_t id, uint32_t class_id, uint32_t cards, uint32_t quota, uint64_t work_ns,
            uint64_t pause_ns);
int sim_work(struct sim *m, uint64_t id, uint32_t card, uint64_t work_ns, uint64_t pause_ns);
int sim_change(struct sim *m, uint64_t id, uint32_t class_id, uint32_t cards, uint32_t quota);
int sim_remove(struct sim *m, uint64_t id);
int sim_pause(struct sim *m, uint64_t id, bool paused);
int sim_configure(struct sim *m, const struct sched_config *config);
/* 0, or -1 and m->error. */
int sim_run(struct sim *m, uint64_t until);
struct tenant *sim_tenant(struct sim *m, uint64_t id);
/* Shares are measured from now on. */
void sim_measure(struct sim *m);
void sim_measure_tenant(struct sim *m, struct tenant *t);
/* The share of its class's open time that excess and deficit are measured against; else fixed-share's
 * quota. */
void sim_expect(struct sim *m, uint64_t id, uint64_t share_ppm);
void sim_report(struct sim *m, uint64_t id, struct sim_report *out);
const char *sim_error(const struct sim *m);
uint64_t sim_now(const struct sim *m);
/* The decisions so far, the last SIM_DECISIONS of them in out; returns their number. */
uint64_t sim_log(const struct sim *m, struct sim_decision out[SIM_DECISIONS]);
/* A whole random life of cards: what happens is chosen by the bytes. 0, or -1 and error set. */
int sim_scenario(const uint8_t *bytes, uint32_t n, uint64_t *events, char error[256]);

/* check.c */
__attribute__((format(printf, 2, 3))) void sim_fail(struct sim *m, const char *format, ...);
void check_advance(struct sim *m, uint64_t to);
void check_decision(struct sim *m, const struct tenant *t, bool run);
void check_decided(struct sim *m);
#endif
