#include "proof.h"
#include "base/mutex.h"
#include <errno.h>

/* RM samples some seven times a second: more often is of no use. */
enum { READ_APART_NS = 10 * 1000 * 1000 };
/* The ring's whole length without a new sample: RM samples no more. */
#define STALLED_NS UINT64_C(10000000000)

void proof_begin(struct loop *l, uint32_t card, uint64_t now)
{
    struct proof *p = &l->card[card].proof;

    assert_held(&l->lock);
    if (!p->since_ns)
        *p = (struct proof){.since_ns = now};
}

void proof_end(struct loop *l, uint32_t card)
{
    assert_held(&l->lock);
    l->card[card].proof = (struct proof){.since_ns = 0};
}

bool proof_found(const struct loop *l, uint32_t card)
{
    assert_held(&l->lock);
    return l->card[card].proof.idle || l->unsampled_cards & 1u << card;
}

/* The first sample after the first reading may have begun before the proof did, and every later one began
 * after it. */
static void note(struct loop *l, uint32_t card, const struct card_samples *found, int error, uint64_t now)
{
    struct proof *p = &l->card[card].proof;

    if (error == 0 && p->newest_ns == found->newest_ns && now - p->advanced_ns >= STALLED_NS)
        error = -ETIMEDOUT;
    if (error < 0) {
        l->unsampled_cards |= 1u << card;
        refusals_note(l->refusals, card, MGPU_WITHOUT_UTILIZATION, error);
        return;
    }
    if (!p->first_ns)
        p->first_ns = found->newest_ns;
    if (p->newest_ns != found->newest_ns)
        p->advanced_ns = now;
    p->newest_ns = found->newest_ns;
    p->idle = found->before_ns > p->first_ns && !found->used;
}

static uint32_t due(struct loop *l, uint64_t now)
{
    uint32_t cards = 0;

    LOCKED(&l->lock);
    for_each_card(i, l->shared & ~l->released_cards)
    {
        struct proof *p = &l->card[i].proof;

        if (!p->since_ns || proof_found(l, i) || (p->read_ns && now - p->read_ns < READ_APART_NS))
            continue;
        p->read_ns = now;
        cards |= 1u << i;
    }
    return cards;
}

void loop_read_samples(struct loop *l)
{
    uint64_t now = loop_now_ns();

    for_each_card(i, due(l, now))
    {
        const struct card *card = mediator_card(l->m, i);
        struct card_samples found = {.newest_ns = 0};
        int e = card && l->m->ops->samples ? l->m->ops->samples(l->m->driver, card, &l->m->rm, &found)
                                           : -ENOSYS;

        pthread_mutex_lock(&l->lock);
        if (l->card[i].proof.read_ns == now && !(l->released_cards & 1u << i))
            note(l, i, &found, e, now);
        pthread_mutex_unlock(&l->lock);
    }
}
