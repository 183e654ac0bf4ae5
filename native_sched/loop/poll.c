#include "poll.h"
#include "base/mutex.h"
#include "entities.h"
#include "numbers.h"
#include "proof.h"
#include <errno.h>

/* Work has ended when so many polls in a row saw none, neither on an engine nor submitted. */
enum { IDLE_POLLS = 3 };
/* So many polls believe what a tenant's own words say, while it may run and no engine executes it. Each that
 * finds it executing makes them as many again. */
enum { CLAIM_POLLS = 2000 };
/* The quiet time of a tenant whose channels do not say what is fetched. */
enum { BY_PUT_TIMES = 10 };
/* After so many polls that saw a tenant's work by USERD alone, health says that the status words are
 * unproven. */
enum { UNPROVEN_POLLS = 2000 };
/* A card without a status for less than this may be changing its power state. */
enum { LOST_NS = 1000 * 1000 * 1000 };

static const struct card *card_of(const struct loop *l, uint32_t index)
{
    return mediator_card(l->m, index);
}

/* Busy is sticky: a tenant that was preempted inside a kernel has nothing submitted and is on no engine. A
 * poll shows it idle only while it runs, and while no engine executes another group. */
static bool shows_idle(const struct loop_entity *entity, unsigned int activity)
{
    return entity->running && !(activity & ACTIVITY_OTHERS);
}

/* How long online counts as busy on a card without a readable engine status. After so long without a fetch it
 * counts as idle, but is not suspended: a kernel under way shares the card with offline. Where only
 * submissions are seen the time is longer, since offline would be suspended inside its kernel. */
static uint64_t quiet_ns(const struct loop *l, const struct loop_entity *entity, uint32_t card,
                         unsigned int activity)
{
    if (!(l->blind_cards & 1u << card))
        return 0;
    if (!entity->online)
        return UINT64_MAX;
    return l->config.quiet_ns * (activity & ACTIVITY_BY_PUT ? BY_PUT_TIMES : 1);
}

/* A kernel longer than the quiet time would share the card with offline, so the last online tenant is idle
 * only once RM has seen the card idle. Online tenants are promised nothing of each other: for all but the
 * last the quiet time is enough. */
static bool may_be_inside_a_kernel(struct loop *l, const struct loop_entity *entity, uint32_t card,
                                   uint64_t now)
{
    if (!entity->online || !(l->blind_cards & 1u << card))
        return false;
    for (uint32_t i = 0; i < l->card[card].tenants; i++) {
        const struct loop_entity *other = &l->entity[l->card[card].tenant[i]];

        if (other != entity && other->online && other->on[card].busy)
            return false;
    }
    proof_begin(l, card, now);
    return !proof_found(l, card);
}

static void note_proven(struct loop *l, uint32_t card, int engines, unsigned int seen)
{
    if (engines <= 0 || l->proven_cards & 1u << card)
        return;
    if (seen & ACTIVITY_EXECUTING) {
        l->proven_cards |= 1u << card;
        refusals_withdraw(l->refusals, card, MGPU_WITHOUT_ENGINE_STATUS, -ENOMSG);
    } else if (seen & (ACTIVITY_NEW | ACTIVITY_PENDING) && ++l->card[card].unproven == UNPROVEN_POLLS) {
        refusals_note(l->refusals, card, MGPU_WITHOUT_ENGINE_STATUS, -ENOMSG);
    }
}

/* A register that always reads as 0 says idle, too: words are taken for a status once they have shown a
 * tenant's group that executes. */
static void note_blind(struct loop *l, uint32_t card, int engines, unsigned int seen)
{
    note_proven(l, card, engines, seen);
    if (engines && l->proven_cards & 1u << card)
        l->blind_cards &= ~(1u << card);
    else
        l->blind_cards |= 1u << card;
}

static void note_idle(struct loop *l, struct loop_entity *entity, uint32_t card, uint64_t now, uint64_t since)
{
    entity->on[card].busy = false;
    entity->on[card].idle_polls = 0;
    sched_work_done(&l->core, now, entity->id, card, since);
    loop_note(l, now, since, entity->id, MGPU_SCHED_IDLE, card, MGPU_WHY_NONE);
}

/* Words of USERD are the tenant's: it would look busy for ever, at no cost of its own. */
static bool has_work(const struct loop *l, struct loop_entity *entity, uint32_t card, unsigned int activity)
{
    uint32_t *claims = &entity->on[card].claims;

    if (activity & ACTIVITY_EXECUTING)
        *claims = 0;
    if (activity & (ACTIVITY_EXECUTING | ACTIVITY_UNSEEN))
        return true;
    if (!(activity & (ACTIVITY_NEW | ACTIVITY_PENDING)))
        return false;
    if (*claims < CLAIM_POLLS && shows_idle(entity, activity) && !(l->blind_cards & 1u << card))
        ++*claims;
    return *claims < CLAIM_POLLS;
}

static void poll_tenant(struct loop *l, struct loop_entity *entity, uint32_t card, unsigned int activity,
                        uint64_t now)
{
    uint64_t quiet;

    if (has_work(l, entity, card, activity)) {
        entity->on[card].idle_polls = 0;
        if (entity->online)
            proof_end(l, card);
        if (entity->on[card].busy)
            return;
        entity->on[card].busy = true;
        sched_work_seen(&l->core, now, entity->id, card, now);
        loop_note(l, now, now, entity->id, MGPU_SCHED_WORK, card, MGPU_WHY_NONE);
        return;
    }
    if (!entity->on[card].busy)
        return;
    if (!shows_idle(entity, activity)) {
        entity->on[card].idle_polls = 0;
        return;
    }
    if (!entity->on[card].idle_polls++)
        entity->on[card].idle_since_ns = now;
    quiet = quiet_ns(l, entity, card, activity);
    if (may_be_inside_a_kernel(l, entity, card, now) || entity->on[card].idle_polls < IDLE_POLLS ||
        now - entity->on[card].idle_since_ns < quiet)
        return;
    note_idle(l, entity, card, now, entity->on[card].idle_since_ns + quiet);
}

/* As what is charged, once for all cards. */
static void note_video(struct loop_entity *entity, uint32_t card, uint64_t from_ns, uint64_t run_ns,
                       unsigned int activity)
{
    if (from_ns < entity->video_to_ns)
        from_ns = entity->video_to_ns;
    if (entity->on[card].video && run_ns > from_ns) {
        entity->video_ns += run_ns - from_ns;
        entity->video_to_ns = run_ns;
    }
    entity->on[card].video = activity & ACTIVITY_VIDEO;
}

/* Counts the time of cards on which the tenant was known to have work; the core charges a tenant with several
 * cards once. */
static void note_use(struct loop *l, struct loop_entity *entity, uint32_t card, bool was_busy,
                     unsigned int activity, uint64_t now)
{
    uint64_t run_ns = sched_run_ns(&l->core, entity->id, now), before = entity->on[card].run_ns;

    entity->on[card].run_ns = run_ns;
    note_video(entity, card, before, run_ns, activity);
    utilization_note(&entity->utilization->card[card], now, was_busy ? (int64_t)(run_ns - before) : 0,
                     sched_most_percent(&l->core, entity->id));
}

/* Reading a word crosses the bus, so those of video engines are read where a tenant works on them. */
static uint64_t polled_engines(const struct loop *l, uint32_t index)
{
    uint64_t engines = 0;

    for (uint32_t i = 0; i < l->card[index].tenants; i++)
        engines |= groups_engines(l->entity[l->card[index].tenant[i]].groups, index);
    return engines;
}

/* A card whose status words have been invalid for LOST_NS is blind until it is added anew. */
static int read_status(struct loop *l, uint32_t index, struct engine_status *engine, uint64_t now)
{
    const struct card *card = card_of(l, index);
    int engines = 0;

    if (card && !(l->lost_cards & 1u << index))
        engines = l->m->ops->engine_status(l->m->driver, card, polled_engines(l, index), engine);
    if (engines >= 0) {
        l->card[index].unread_ns = 0;
        return engines;
    }
    if (!l->card[index].unread_ns)
        l->card[index].unread_ns = now;
    if (now - l->card[index].unread_ns < LOST_NS)
        return engines;
    l->lost_cards |= 1u << index;
    refusals_note(l->refusals, index, MGPU_WITHOUT_ENGINE_STATUS, engines);
    return 0;
}

static void poll_card(struct loop *l, uint32_t index, uint64_t now)
{
    struct engine_status engine[ENGINES_MAX];
    int engines = read_status(l, index, engine, now);
    unsigned int seen = 0;

    assert_held(&l->lock);
    numbers_learn(l, index, engine, engines);
    numbers_translate(l, index, engine, engines);
    loop_stats_count(&l->stats.polls);
    if (l->card[index].unwatched)
        sched_watched(&l->core, now, index, true);
    l->card[index].unwatched = false;
    for (uint32_t i = 0; i < l->card[index].tenants; i++) {
        struct loop_entity *entity = &l->entity[l->card[index].tenant[i]];
        unsigned int activity = groups_poll(entity->groups, index, engine, engines);
        bool was_busy = entity->on[index].busy;

        seen |= activity;
        /* An engine may be executing any group at present, so no tenant is seen idle. */
        if (engines < 0)
            activity |= ACTIVITY_OTHERS;
        if (!(activity & ACTIVITY_UNKNOWN))
            poll_tenant(l, entity, index, activity, now);
        note_use(l, entity, index, was_busy, activity, now);
    }
    note_blind(l, index, engines, seen);
}

void loop_poll(struct loop *l)
{
    uint64_t now = loop_now_ns();

    LOCKED(&l->lock);
    for_each_card(i, l->shared)
    {
        if (!(l->released_cards & 1u << i) && l->card[i].next_poll_ns <= now)
            poll_card(l, i, now);
    }
    l->polled_ns = now;
}

static bool any_channel(const struct loop *l, uint32_t card)
{
    for (uint32_t i = 0; i < l->card[card].tenants; i++)
        if (groups_any_channel(l->entity[l->card[card].tenant[i]].groups, card))
            return true;
    return false;
}

/* A program in a container asks for its use of a card that is not polled otherwise. */
static bool wanted(const struct loop *l, uint32_t card, uint64_t now)
{
    for (uint32_t i = 0; i < l->card[card].tenants; i++)
        if (utilization_wanted(l->entity[l->card[card].tenant[i]].utilization, now))
            return true;
    return false;
}

static enum sched_watch_level level(const struct loop *l, uint32_t card, uint64_t now)
{
    enum sched_watch_level core = sched_watch(&l->core, card);

    return core == WATCH_NONE && wanted(l, card, now) ? WATCH_SLOW : core;
}

static void pause_accounts(struct loop *l, uint32_t card)
{
    for (uint32_t i = 0; i < l->card[card].tenants; i++)
        utilization_pause(&l->entity[l->card[card].tenant[i]].utilization->card[card]);
}

static uint64_t period_ns(struct loop *l, uint32_t card, uint64_t now)
{
    enum sched_watch_level watch = level(l, card, now);

    if (watch == WATCH_NONE && !l->card[card].unwatched) {
        sched_watched(&l->core, now, card, false);
        l->card[card].unwatched = true;
    }
    switch (!(l->released_cards & 1u << card) && any_channel(l, card) ? watch : WATCH_NONE) {
    case WATCH_FAST:
        return l->config.poll_fast_ns;
    case WATCH_SLOW:
        return l->config.poll_slow_ns;
    default:
        return 0;
    }
}

void loop_plan_polls(struct loop *l, uint64_t now)
{
    uint64_t earliest = UINT64_MAX, polled = l->polled_ns;

    assert_held(&l->lock);
    for_each_card(i, l->shared)
    {
        struct loop_card *card = &l->card[i];
        uint64_t period = period_ns(l, i, now);

        if (!period && card->next_poll_ns != UINT64_MAX)
            pause_accounts(l, i);
        if (!period)
            card->next_poll_ns = UINT64_MAX;
        else if (card->next_poll_ns <= polled || card->next_poll_ns > polled + period)
            card->next_poll_ns = polled + period;
        if (card->next_poll_ns < earliest)
            earliest = card->next_poll_ns;
    }
    l->next_poll_ns = earliest;
}

void loop_release_card(struct loop *l, uint32_t card, bool released)
{
    uint64_t now = loop_now_ns();

    pthread_mutex_lock(&l->lock);
    l->released_cards = released ? l->released_cards | 1u << card : l->released_cards & ~(1u << card);
    l->proven_cards &= ~(1u << card);
    l->lost_cards &= ~(1u << card);
    l->unsampled_cards &= ~(1u << card);
    l->card[card].unproven = 0;
    l->card[card].numbers = (struct numbers){.own = 0};
    l->blind_cards |= 1u << card;
    proof_end(l, card);
    for (uint32_t i = 0; released && i < l->card[card].tenants; i++) {
        struct loop_entity *entity = &l->entity[l->card[card].tenant[i]];

        if (entity->on[card].busy)
            note_idle(l, entity, card, now, now);
    }
    pthread_mutex_unlock(&l->lock);
    loop_kick(l);
}

bool loop_card_is_released(struct loop *l, uint32_t card)
{
    LOCKED(&l->lock);
    return l->released_cards & 1u << card;
}
