#include "sim.h"
#include <stdlib.h>
#include <string.h>

/* A random life of a few cards. Choices come from the bytes first; when those are used up, from a generator
 * that they seed, so that short inputs are whole lives too. */
struct choices {
    const uint8_t *bytes;
    uint32_t n, at;
    uint64_t state;
};

static uint32_t choose(struct choices *c, uint32_t below)
{
    uint64_t value;

    if (c->at < c->n)
        return c->bytes[c->at++] % below;
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    value = c->state >> 33;
    return (uint32_t)value % below;
}

static uint64_t time_ns(struct choices *c)
{
    static const uint64_t times[] = {20 * NSEC_PER_USEC, 200 * NSEC_PER_USEC, 1 * NSEC_PER_MSEC,
                                     3 * NSEC_PER_MSEC,  8 * NSEC_PER_MSEC,   30 * NSEC_PER_MSEC,
                                     120 * NSEC_PER_MSEC};

    return times[choose(c, sizeof(times) / sizeof(times[0]))];
}

static struct sched_config some_config(struct choices *c)
{
    static const uint64_t holds[] = {0, 1, 7, 100};
    struct sched_config config = sched_default_config;

    config.hold_ns = holds[choose(c, 4)] * NSEC_PER_MSEC;
    if (choose(c, 3) == 0)
        config.linger_ns = choose(c, 4) * 10 * NSEC_PER_MSEC;
    if (choose(c, 4) == 0)
        config.offline_slice_ns = (1 + choose(c, 20)) * NSEC_PER_MSEC;
    if (choose(c, 4) == 0)
        config.period_ns = (20 + choose(c, 200)) * NSEC_PER_MSEC;
    return config;
}

static void add(struct sim *m, struct choices *c, uint32_t cards, uint64_t id)
{
    static const uint32_t quotas[] = {1, 3, 6, 10, 20, 25, 30, 50, 70, 100};
    uint32_t mask = 1u << choose(c, cards);

    if (choose(c, 4) == 0)
        mask |= 1u << choose(c, cards);
    if (choose(c, 8) == 0)
        mask |= 1u << choose(c, cards);
    sim_add(m, id, choose(c, 2), mask, quotas[choose(c, 10)], choose(c, 4) ? time_ns(c) : ENDLESS,
            time_ns(c));
}

static void act(struct sim *m, struct choices *c, uint32_t cards)
{
    struct tenant *t = &m->tenant[choose(c, m->tenants ? m->tenants : 1)];
    uint32_t class_id = t->is.class_id, mask = t->is.cards, quota = t->is.quota_percent;
    struct sched_config config;

    switch (choose(c, 9)) {
    case 0:
        add(m, c, cards, 1 + choose(c, 40));
        break;
    case 1:
        if (t->live)
            sim_remove(m, t->is.id);
        break;
    case 2:
        if (t->live)
            sim_change(m, t->is.id, !class_id, mask, quota);
        break;
    case 3:
        quota = 1 + choose(c, 100);
        if (t->live)
            sim_change(m, t->is.id, class_id, mask, quota);
        break;
    case 4:
        mask ^= 1u << choose(c, cards);
        if (t->live)
            sim_change(m, t->is.id, class_id, mask, quota);
        break;
    case 5:
        if (t->live)
            sim_work(m, t->is.id, (uint32_t)__builtin_ctz(mask), choose(c, 3) ? time_ns(c) : ENDLESS,
                     time_ns(c));
        break;
    case 6:
        config = some_config(c);
        if (choose(c, 3) == 0)
            sim_configure(m, &config);
        break;
    case 7:
        if (t->live)
            sim_pause(m, t->is.id, !t->paused);
        break;
    default:
        break;
    }
}

int sim_scenario(const uint8_t *bytes, uint32_t n, uint64_t *events, char error[256])
{
    struct choices c = {.bytes = bytes, .n = n, .state = 88172645463325252u};
    struct sim_options options = {
        .order = {80 * NSEC_PER_USEC, 200 * NSEC_PER_USEC},
        .detect = {0, 300 * NSEC_PER_USEC},
        .confirm = {0, 20 * NSEC_PER_USEC},
        .decide_max = SIM_TENANTS,
    };
    struct sched_config config;
    uint32_t cards, tenants, steps;
    struct sim *m;

    for (uint32_t i = 0; i < n; i++)
        c.state = (c.state ^ bytes[i]) * 0x100000001b3u;
    config = some_config(&c);
    cards = 1 + choose(&c, 4);
    tenants = choose(&c, 14);
    steps = choose(&c, 12);
    if (choose(&c, 4) == 0)
        options.order = (struct span){0, 0};
    if (choose(&c, 8) == 0)
        options.order.max_ns = 15 * NSEC_PER_MSEC;
    if (choose(&c, 6) == 0)
        options.fail_percent = 5 + choose(&c, 40);
    if (choose(&c, 4) == 0)
        options.decide_max = 1 + choose(&c, 3);
    m = sim_new(&config, &options);
    m->salt = c.state;
    for (uint32_t card = 0; card < cards; card++)
        sim_policy(m, card, choose(&c, 3) ? choose(&c, SCHED_POLICIES) : m->policy[0]);
    for (uint32_t i = 0; i < tenants; i++)
        add(m, &c, cards, 1 + choose(&c, 40));
    for (uint32_t i = 0; i < steps && !*m->error; i++) {
        sim_run(m, m->now + time_ns(&c));
        act(m, &c, cards);
    }
    sim_run(m, m->now + 300 * NSEC_PER_MSEC);
    *events = m->events_done;
    memcpy(error, m->error, sizeof(m->error));
    sim_free(m);
    return *error ? -1 : 0;
}
