/* GPU utilisation as a program in the container sees it: what the scheduler counted to the container alone.
 * The parameters are larger than our copy, so the samples are written where the caller has them. */
#include "control.h"
#include "native_sched/nvidia/channels/groups.h"
#include "native_sched/nvidia/rm/perfmon.h"
#include "view.h"
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

/* A monitor asks every few minutes at the latest; nvidia-smi once, soon after it has made its objects. */
#define ASKED_FOR_NS    UINT64_C(300000000000)
#define EXPECTED_FOR_NS UINT64_C(2000000000)

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void want(const struct tenant *t, uint64_t now, uint64_t for_ns)
{
    if (utilization_want(t->utilization, now, now + for_ns))
        eventfd_write(t->groups->kick, 1);
}

void utilization_expected(const struct tenant *t)
{
    want(t, now_ns(CLOCK_MONOTONIC), EXPECTED_FOR_NS);
}

/* The card whose samples there are, or NULL and why not. */
static const struct card *card_asked(struct call *c, uint32_t *status)
{
    const struct rm_control *ctl = (const void *)c->outer;
    const struct card *card;
    uint32_t slot, index = OBJECT_NO_CARD, class_id = 0;
    {
        WITH_TENANT(c->tenant);
        if ((slot = call_find(c, ctl->client, ctl->object))) {
            index = c->tenant->objects.slot[slot].card;
            class_id = c->tenant->objects.slot[slot].class_id;
        }
    }
    card = mediator_card(c->m, index);
    *status = NV_ERR_INVALID_OBJECT_HANDLE;
    if (!card)
        return NULL;
    /* The driver has none of MIG instances either. */
    *status = NV_ERR_NOT_SUPPORTED;
    if (rm_kind_of(class_id) != RM_KIND_SUBDEVICE || card->gpu_instance != RM_NO_INSTANCE ||
        !atomic_load(&c->tenant->utilization->kept))
        return NULL;
    *status = NV_OK;
    return card;
}

struct samples {
    struct utilization_sample sample[UTILIZATION_SAMPLES];
    uint32_t count, pid;
    int64_t wall_ahead_ns;
};

static void take(const struct tenant *t, uint32_t card, struct samples *out)
{
    uint64_t now = now_ns(CLOCK_MONOTONIC);

    want(t, now, ASKED_FOR_NS);
    out->wall_ahead_ns = utilization_wall_ahead(t->utilization, now, now_ns(CLOCK_REALTIME));
    out->count = utilization_read(&t->utilization->card[card], now, !groups_any_channel(t->groups, card),
                                  out->sample);
}

static void put(const struct rm_perfmon_layout *l, const struct samples *s, uint32_t i, uint8_t *at)
{
    struct rm_perfmon_use use[RM_PERFMON_KNOWN] = {
        {0, RM_PERFMON_NO_PID}, {0, RM_PERFMON_NO_PID}, {0, RM_PERFMON_NO_PID}, {0, RM_PERFMON_NO_PID}};
    const struct utilization_sample *sample = &s->sample[i];

    if (i >= s->count) {
        memset(at, 0, l->sample_bytes);
        return;
    }
    if (sample->hundredths)
        use[RM_PERFMON_GR] = (struct rm_perfmon_use){sample->hundredths, s->pid};
    rm_perfmon_write(l, at, sample->end_ns + (uint64_t)s->wall_ahead_ns, use);
}

/* All of the ring, by as many at a time as there is room for. */
static int write_ring(struct call *c, const struct rm_perfmon_layout *l, const struct samples *s, uint64_t at)
{
    uint32_t at_once = PARAMS_MAX / l->sample_bytes, n;
    int e = 0;

    for (uint32_t first = 0; first < RM_PERFMON_SAMPLES && e == 0; first += n) {
        n = first + at_once < RM_PERFMON_SAMPLES ? at_once : RM_PERFMON_SAMPLES - first;
        for (uint32_t i = 0; i < n; i++)
            put(l, s, first + i, c->params + (size_t)i * l->sample_bytes);
        if (!caller_waits(c->caller))
            return -EINTR;
        e = caller_write_both(c->caller, 0, NULL, 0, at + (uint64_t)first * l->sample_bytes, c->params,
                              (size_t)n * l->sample_bytes);
    }
    return e;
}

int control_utilization(struct call *c, uint32_t *status)
{
    uint64_t at = ((const struct rm_control *)(const void *)c->outer)->params;
    struct rm_perfmon_layout layout = rm_perfmon_layout(&c->m->rm);
    const struct card *card = card_asked(c, status);
    struct rm_perfmon_head head;
    struct samples samples;
    int e;

    if (!card)
        return 0;
    if ((e = caller_read(c->caller, at, &head, sizeof(head))) < 0)
        return e;
    if (head.buffer_bytes != layout.sample_bytes * RM_PERFMON_SAMPLES) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    take(c->tenant, card->index, &samples);
    if ((e = view_only_process(c, &samples.pid, status)) < 0 || *status)
        return e;
    if ((e = write_ring(c, &layout, &samples, at + sizeof(head))) < 0)
        return e;
    head.count = RM_PERFMON_SAMPLES;
    head.tracker = samples.count % RM_PERFMON_SAMPLES;
    memcpy(c->params, &head, sizeof(head));
    c->params_at = at;
    c->params_bytes = sizeof(head);
    c->params_out = true;
    return 0;
}
_Static_assert((int)RM_PERFMON_SAMPLES == (int)UTILIZATION_SAMPLES, "a slot for each sample");
_Static_assert(sizeof(((struct utilization *)0)->card) / sizeof(struct utilization_of_card) == MAX_CARDS,
               "an account for each card");
