#include "numbers.h"
#include "base/mutex.h"

/* The largest difference that was seen: a larger one would let a tenant's neighbouring groups stand for each
 * other. */
enum { OWN_MOST = 1, AGREEING_POLLS = 3 };
enum { POSSIBLE = (1u << (OWN_MOST + 1)) - 1 };

void numbers_translate(const struct loop *l, uint32_t card, struct engine_status *engine, int engines)
{
    const struct numbers *n = &l->card[card].numbers;

    assert_held(&l->lock);
    for (int i = 0; i < engines; i++)
        engine[i].tsg_id = !n->learned || engine[i].tsg_id == ANOTHER_S || engine[i].tsg_id < n->own
                               ? ANOTHER_S
                               : engine[i].tsg_id - n->own;
}

/* The differences that explain what the engine executes, a bit each. A suspended group executes nothing,
 * except while the suspend takes effect: 0 then. */
static uint32_t differences(struct loop *l, uint32_t card, const struct engine_status *engine)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < l->card[card].tenants; i++) {
        const struct loop_entity *entity = &l->entity[l->card[card].tenant[i]];

        if (entity->order != LOOP_NOTHING)
            return 0;
        if (entity->running)
            found |= groups_differences(entity->groups, card, engine);
    }
    return found & POSSIBLE;
}

static void note(struct numbers *n, uint32_t own)
{
    if (own != n->own)
        n->agreeing = 0;
    n->own = own;
    n->learned = ++n->agreeing >= AGREEING_POLLS;
}

void numbers_learn(struct loop *l, uint32_t card, const struct engine_status *engine, int engines)
{
    assert_held(&l->lock);
    for (int i = 0; i < engines && !l->card[card].numbers.learned; i++) {
        uint32_t found = engine[i].busy ? differences(l, card, &engine[i]) : 0;

        if (__builtin_popcount(found) == 1)
            note(&l->card[card].numbers, (uint32_t)__builtin_ctz(found));
    }
}
