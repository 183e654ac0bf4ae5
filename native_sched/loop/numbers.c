#include "numbers.h"
#include "base/mutex.h"

/* So many polls that found it busy have to agree. */
enum { AGREEING_POLLS = 20 };

void numbers_translate(const struct loop *l, uint32_t card, struct engine_status *engine, int engines)
{
    uint32_t own = l->card[card].numbers.own;

    assert_held(&l->lock);
    for (int i = 0; i < engines; i++)
        if (engine[i].tsg_id != UINT32_MAX && engine[i].tsg_id >= own)
            engine[i].tsg_id -= own;
}

/* What is suspended executes nothing. */
static uint32_t differences(struct loop *l, uint32_t card, const struct engine_status *engine)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < l->card[card].tenants; i++) {
        const struct loop_entity *entity = &l->entity[l->card[card].tenant[i]];

        if (entity->running)
            found |= groups_differences(entity->groups, card, engine);
    }
    return found;
}

/* One that all polls allow. Where none is left, a group was freed or made between two of them. */
static void note(struct numbers *n, uint32_t found)
{
    if (!(n->possible & found))
        *n = (struct numbers){.own = n->own, .possible = UINT32_MAX};
    n->possible &= found;
    if (++n->agreeing >= AGREEING_POLLS && __builtin_popcount(n->possible) == 1)
        n->own = (uint32_t)__builtin_ctz(n->possible);
}

void numbers_learn(struct loop *l, uint32_t card, const struct engine_status *engine, int engines)
{
    uint32_t found;

    assert_held(&l->lock);
    for (int i = 0; i < engines; i++)
        if (engine[i].busy && (found = differences(l, card, &engine[i])))
            note(&l->card[card].numbers, found);
}
