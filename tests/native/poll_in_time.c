/* The loop's polls in virtual time: cards whose engines can be seen or not, and tenants that have a channel
 * on each of their cards. What is decided is carried out at once. */
#include "../../base/mutex.h"
#include "../../native_sched/core/sched.h"
#include "../../native_sched/loop/entities.h"
#include "../../native_sched/loop/poll.h"
#include "../../native_sched/loop/proof.h"
#include "../../native_sched/nvidia/driver/registers.h"
#include <errno.h>
#include <string.h>

enum { TENANTS = 8, DECISIONS = 64, USERD_BYTES = 512 };

static struct loop l;
static struct mediator m;
static struct driver_ops ops;
static struct refusals refusals;
static struct ids ids;
static uint64_t virtual_now;
static struct {
    int engines; /* as engine_status() answers */
    uint32_t tsg;
    int error; /* of samples() */
    struct card_samples samples;
    uint32_t readings;
    struct registers registers; /* where it has some, they are read in place of that answer */
} card[MAX_CARDS];
static struct {
    struct groups groups;
    struct utilization utilization;
    _Alignas(8) uint8_t userd[MAX_CARDS][USERD_BYTES];
} tenant[TENANTS];

uint64_t loop_now_ns(void)
{
    return virtual_now;
}

void loop_note(struct loop *loop, uint64_t at_ns, uint64_t since_ns, uint64_t id, uint32_t kind,
               uint32_t index, uint32_t why)
{
    (void)loop, (void)at_ns, (void)since_ns, (void)id, (void)kind, (void)index, (void)why;
}

void loop_kick(struct loop *loop)
{
    (void)loop;
}

static int engine_status(struct driver *d, const struct card *of, uint64_t engines, struct engine_status *out)
{
    (void)d;
    if (card[of->index].registers.engines)
        return registers_read(&card[of->index].registers, engines, out);
    *out = (struct engine_status){.busy = card[of->index].tsg,
                                  .tsg_id = card[of->index].tsg,
                                  .engines = engine_bit(RM_ENGINE_GRAPHICS)};
    return card[of->index].engines;
}

static int samples(struct driver *d, const struct card *of, const struct rm_table *rm,
                   struct card_samples *out)
{
    (void)d, (void)rm;
    *out = card[of->index].samples;
    card[of->index].readings++;
    return card[of->index].error;
}

/* Whether it is known that its engines name groups by RM's own numbers. */
void poll_numbered(uint32_t index, int known)
{
    l.card[index].numbers = (struct numbers){.learned = known};
}

void poll_begin(uint64_t quiet_ns, uint64_t hold_ns)
{
    const struct mgpu_sched_config config = {.hold_ns = hold_ns, .quiet_ns = quiet_ns};

    memset(&l, 0, sizeof(l));
    l.blind_cards = UINT32_MAX; /* as loop_start() has it */
    memset(tenant, 0, sizeof(tenant));
    memset(card, 0, sizeof(card));
    virtual_now = 0;
    ops = (struct driver_ops){.engine_status = engine_status, .samples = samples};
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        card[i].error = -EOPNOTSUPP;
    refusals = (struct refusals){.events = -1};
    l.refusals = &refusals;
    m = (struct mediator){.ops = &ops, .cards = MAX_CARDS};
    for (uint32_t i = 0; i < MAX_CARDS; i++) {
        m.card[i].index = i;
        poll_numbered(i, 1);
    }
    l.m = &m;
    pthread_mutex_init(&l.active, NULL);
    pthread_mutex_init(&l.lock, NULL);
    sched_init(&l.core, &sched_default_config, virtual_now);
    loop_configure(&l, &config);
}

/* Its channel's group has the number `id` on each card. */
int poll_tenant(uint32_t id, int online, uint32_t cards)
{
    const struct sched_entity_config config = {
        .id = id, .class_id = online ? SCHED_ONLINE : SCHED_OFFLINE, .cards = cards, .quota_percent = 1};
    struct groups *g = &tenant[id].groups;
    int e = groups_init(g, &ops, NULL, &refusals, &ids, -1);

    for (uint32_t i = 0; e == 0 && i < MAX_CARDS; i++) {
        if (!(cards & 1u << i))
            continue;
        g->group[g->groups] = (struct group){.card = i, .tsg_id = id};
        g->channel[g->channels++] = (struct channel){.userd.at = tenant[id].userd[i],
                                                     .userd.has_get = true,
                                                     .card = i,
                                                     .group = g->groups++,
                                                     .live = true};
    }
    if (e == 0)
        e = loop_schedule(&l, &config, g, &tenant[id].utilization);
    for (uint32_t i = 0; i < g->groups; i++)
        g->group[i].live = true;
    return e;
}

void poll_group(uint32_t id, uint32_t index, uint32_t tsg)
{
    struct groups *g = &tenant[id].groups;

    g->group[g->groups++] = (struct group){.card = index, .tsg_id = tsg, .live = true};
}

/* Its channels do not say what is fetched. */
void poll_by_put(uint32_t id)
{
    for (uint32_t i = 0; i < tenant[id].groups.channels; i++)
        tenant[id].groups.channel[i].userd.has_get = false;
}

void poll_userd(uint32_t id, uint32_t index, uint32_t put, uint32_t get)
{
    memcpy(tenant[id].userd[index] + RM_USERD_GP_PUT, &put, sizeof(put));
    memcpy(tenant[id].userd[index] + RM_USERD_GP_GET, &get, sizeof(get));
}

/* engines: 1, its only one can be seen, and executes that group (0: none); 0: none can; negative: not now. */
void poll_engine(uint32_t index, int engines, uint32_t tsg)
{
    card[index].engines = engines;
    card[index].tsg = tsg;
}

/* The card's engines are read as a chip has them: at bar, and so many status words. 0 or -ENODATA. */
int poll_registers(uint32_t index, const struct chip *chip, const void *bar, size_t bytes)
{
    const struct runlist graphics = {.count = chip->words, .engines = 1};
    int e = registers_open(&card[index].registers, bar, bytes, chip, &graphics, 1);

    return e < 0 ? e : 0;
}

/* So many channels more, all in its first group. */
void poll_channels(uint32_t id, uint32_t more)
{
    struct groups *g = &tenant[id].groups;

    while (more--)
        g->channel[g->channels++] = g->channel[0];
}

/* error: 0, or RM samples nothing. The newest sample is of then, and `used` says whether something executed.
 */
void poll_samples(uint32_t index, int error, uint64_t newest_ns, int used)
{
    uint64_t before_ns = card[index].samples.newest_ns;

    card[index].error = error;
    card[index].samples = (struct card_samples){newest_ns, before_ns, used};
}

int poll_without(uint32_t index, int kind)
{
    return atomic_load(&refusals.first[index][kind]);
}

uint32_t poll_readings(uint32_t index)
{
    return card[index].readings;
}

void poll_release(uint32_t index, int released)
{
    loop_release_card(&l, index, released);
    poll_numbered(index, 1);
}

uint64_t poll_count(void)
{
    return atomic_load(&l.stats.polls);
}

static struct loop_entity *entity_of(uint64_t id)
{
    LOCKED_(loop_held, &l.lock);

    return loop_entity_of(&l, id);
}

void poll_at(uint64_t now)
{
    struct sched_decision decision[DECISIONS];
    uint64_t wake_at;
    uint32_t n;
    bool more;

    virtual_now = now;
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        l.card[i].next_poll_ns = 0;
    loop_poll(&l);
    loop_read_samples(&l);
    do {
        more = sched_decide(&l.core, now, decision, DECISIONS, &n, &wake_at);
        for (uint32_t i = 0; i < n; i++) {
            sched_applied(&l.core, now, decision[i].id, decision[i].run);
            entity_of(decision[i].id)->running = decision[i].run;
        }
    } while (more || n);
}

int poll_busy(uint32_t id, uint32_t index)
{
    return entity_of(id)->on[index].busy;
}

int poll_enabled(uint32_t id)
{
    struct mgpu_sched_state state;

    return loop_state(&l, id, &state) ? -1 : (int)state.enabled;
}
