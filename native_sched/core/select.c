#include "select.h"
#include "entity.h"
#include "policy.h"

/* Start-time fair queueing with one slot per card. Entities are taken by rising virtual time, each if all its
 * cards are free. One in the middle of its turn has the virtual time of the turn's beginning: it was the
 * first in line then, and still is, except before a gang that could not get all its cards then, and before
 * one that has woken up since. So a gang that has had less than all others gets its cards at the end of
 * the turns that it waits for, however many singles there are. */

static bool by_key(const struct entity *a, const struct entity *b)
{
    return a->key != b->key ? vruntime_before(a->key, b->key) : a->id < b->id;
}

/* Shell sort: a domain has few candidates, nearly in order. */
static void sort(struct entity **q, uint32_t n)
{
    static const uint32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};

    for (uint32_t g = 0; g < sizeof(gaps) / sizeof(gaps[0]); g++)
        for (uint32_t i = gaps[g]; i < n; i++) {
            struct entity *e = q[i];
            uint32_t j = i;

            for (; j >= gaps[g] && by_key(e, q[j - gaps[g]]); j -= gaps[g])
                q[j] = q[j - gaps[g]];
            q[j] = e;
        }
}

/* The lowest virtual time on each card of entities that did not just wake up. Those that wake up are placed
 * below it and must not take later ones further down, so it falls back by at most one slice. */
static void note_min_vruntime(struct sched *s, const struct sched_class *class, uint32_t n)
{
    uint64_t lowest[SCHED_CARDS], slice = s->slice_ns[class->id];
    uint32_t noted = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct entity *e = s->queue[i];

        if (e->waking)
            continue;
        for_each_card(card, e->cards)
        {
            if (!(noted >> card & 1) || vruntime_before(e->vruntime, lowest[card]))
                lowest[card] = e->vruntime;
        }
        noted |= e->cards;
    }
    for_each_card(card, noted)
    {
        uint64_t *min = &s->rq[card].min_vruntime[class->id];

        if (vruntime_before(*min, lowest[card]))
            *min = lowest[card];
        else if (vruntime_before(lowest[card] + slice, *min))
            *min = lowest[card] + slice;
    }
}

static void shift(struct entity *e, uint64_t by)
{
    e->vruntime += by;
    e->charge.vruntime += by;
    e->slice_vruntime += by;
}

/* The place in line of an entity that had no work: it has saved up at most one slice (design §4: every entity
 * with work shares). */
static void place(const struct sched *s, const struct sched_class *class, struct entity *e)
{
    uint64_t from = s->rq[first_card(e->cards)].min_vruntime[class->id];

    for_each_card(card, e->cards)
    {
        uint64_t v = s->rq[card].min_vruntime[class->id];

        if (vruntime_before(from, v))
            from = v;
    }
    from -= s->slice_ns[class->id];
    if (vruntime_before(e->vruntime, from))
        shift(e, from - e->vruntime);
}

/* A gang with one crowded card falls behind the entities that have its other cards for themselves. These must
 * not pay for it when the crowd is gone, or they would not run until the gang has caught up. Turns alone
 * never part the virtual times of competitors by more than two slices, so there is no competition across a
 * wider gap, and it is closed as a whole: the order on either side stays. */
static void close_gaps(struct sched *s, const struct sched_class *class, uint32_t n)
{
    uint64_t widest = 0, by = 0;
    uint32_t noted = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t slice = s->slice_ns[class->id] * 100 / s->queue[i]->policy->weight(s->queue[i]);

        widest = slice > widest ? slice : widest;
        s->queue[i]->key = s->queue[i]->vruntime;
    }
    sort(s->queue, n);
    for (uint32_t i = 0; i < n; i++) {
        struct entity *e = s->queue[i];
        uint64_t gap = i ? e->key - s->queue[i - 1]->key : 0;

        if (gap > 2 * widest)
            by += gap - 2 * widest;
        if (by)
            shift(e, -by);
        for_each_card(card, e->cards & ~noted) s->rq[card].min_vruntime[class->id] -= by;
        noted |= e->cards;
    }
}

/* May a runner in the middle of its turn be put out by e? */
static bool puts_out(const struct sched *s, const struct sched_class *class, const struct entity *e,
                     const struct entity *runner)
{
    uint64_t earned = e->vruntime + s->wakeup_granularity_ns;

    if (e->waking)
        return class->wakeup_preempts && vruntime_before(earned, runner->vruntime);
    return (e->cards & (e->cards - 1)) && vruntime_before(earned, runner->slice_vruntime);
}

static void set_keys(const struct sched *s, const struct sched_class *class, uint32_t n)
{
    struct entity *runner[SCHED_CARDS] = {0};

    for (uint32_t i = 0; i < n; i++) {
        struct entity *e = s->queue[i];

        e->sticky = e->slice_end && entity_on(e);
        if (e->sticky)
            for_each_card(card, e->cards) runner[card] = e;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct entity *e = s->queue[i];
        bool first = true;

        e->key = e->sticky ? e->slice_vruntime : e->vruntime;
        if (e->sticky)
            continue;
        for_each_card(card, e->cards) first &= !runner[card] || puts_out(s, class, e, runner[card]);
        for_each_card(card, e->cards)
        {
            struct entity *r = runner[card];

            if (!r)
                continue;
            if (first && vruntime_before(r->slice_vruntime, e->key + 1))
                e->key = r->slice_vruntime - 1;
            else if (!first && vruntime_before(e->key, r->slice_vruntime + 1))
                e->key = r->slice_vruntime + 1;
        }
    }
}

uint32_t select_run(struct sched *s, const struct sched_class *class, uint32_t n, uint64_t now)
{
    uint32_t taken = 0;

    note_min_vruntime(s, class, n);
    for (uint32_t i = 0; i < n; i++)
        if (s->queue[i]->waking)
            place(s, class, s->queue[i]);
    close_gaps(s, class, n);
    for (uint32_t i = 0; i < n; i++)
        if (s->queue[i]->slice_end <= now)
            s->queue[i]->slice_end = 0;
    set_keys(s, class, n);
    sort(s->queue, n);
    for (uint32_t i = 0; i < n; i++) {
        struct entity *e = s->queue[i];

        e->waking = false;
        e->chosen = !(taken & e->cards);
        if (!e->chosen) {
            e->why = e->sticky ? WHY_PREEMPTED : WHY_SLICE;
            continue;
        }
        taken |= e->cards;
        if (!e->sticky && entity_on(e)) {
            e->slice_end = now + s->slice_ns[class->id];
            e->slice_vruntime = e->vruntime;
        }
    }
    return taken;
}
