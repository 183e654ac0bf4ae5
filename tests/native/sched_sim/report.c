#include "sim.h"
#include <string.h>

void sim_measure_tenant(struct sim *m, struct tenant *t)
{
    t->excess = t->excess_low = t->excess_worst = t->deficit_high = t->deficit_worst = 0;
    t->run_ns = t->slot_ns = t->open_ns = t->switches = 0;
    t->burst_ns = m->config.period_ns / 100 * t->is.quota_percent;
    if (t->policy == SCHED_FIXED)
        t->share_ppm = 10000ull * t->is.quota_percent;
}

void sim_measure(struct sim *m)
{
    for (uint32_t i = 0; i < m->tenants; i++)
        sim_measure_tenant(m, &m->tenant[i]);
}

void sim_expect(struct sim *m, uint64_t id, uint64_t share_ppm)
{
    sim_tenant(m, id)->share_ppm = share_ppm;
}

void sim_report(struct sim *m, uint64_t id, struct sim_report *out)
{
    const struct tenant *t = sim_tenant(m, id);

    *out = (struct sim_report){
        .run_ns = t->run_ns,
        .slot_ns = t->slot_ns,
        .open_ns = t->open_ns,
        .switches = t->switches,
        .excess_ns = t->excess_worst / 1000000,
        .deficit_ns = t->deficit_worst / 1000000,
    };
}

const char *sim_error(const struct sim *m)
{
    return m->error;
}

uint64_t sim_now(const struct sim *m)
{
    return m->now;
}

uint64_t sim_log(const struct sim *m, struct sim_decision out[SIM_DECISIONS])
{
    memcpy(out, m->log, sizeof(m->log));
    return m->logged;
}
