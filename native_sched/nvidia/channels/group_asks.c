#include "group_control.h"
#include "groups_private.h"
#include "native_sched/nvidia/rm/rm_abi.h"

struct group *group_find(struct groups *g, uint32_t client, uint32_t handle)
{
    assert_held(&g->lock);
    for (uint32_t i = 0; i < g->groups; i++)
        if (g->group[i].live && g->group[i].name.client == client && g->group[i].name.handle == handle)
            return &g->group[i];
    return NULL;
}

/* Where RM refuses the id, no engine is ever seen to execute the group: its work counts as another's. */
int group_find_tsg_id(struct groups *g, struct group *group)
{
    int e = group_tsg_id(g->ops, g->driver, &group->name, &group->tsg_id);

    if (e < 0)
        group->tsg_id = NO_TSG;
    if (rm_refused(e)) {
        refusals_note(g->refusals, group->card, MGPU_WITHOUT_GROUP_IDS, e);
        e = 0;
    }
    return e;
}

/* A channel whose USERD cannot be read counts as busy for as long as it exists. */
void channel_map_userd(struct groups *g, struct channel *c)
{
    struct rm_target name = g->group[c->group].name;
    int e;

    name.handle = c->handle;
    name.userd = c->place;
    if ((e = g->ops->userd_map(g->driver, &name, &c->userd)) < 0) {
        refusals_note(g->refusals, c->card, MGPU_WITHOUT_USERD, e);
        return;
    }
    c->blind = false;
    /* The next poll counts earlier submissions as new. A ring begins with its first entry. */
    c->seen_put = c->userd.has_get ? userd_word(&c->userd, RM_USERD_GP_GET) : 0;
}

bool groups_ask_recovered(struct groups *g)
{
    assert_held(&g->lock);
    for (struct group *group = g->group; g->recovered && group < g->group + g->groups; group++)
        if (group->live && group->recovered) {
            group->recovered = false;
            group_find_tsg_id(g, group);
            return true;
        }
    for (struct channel *c = g->channel; g->recovered && c < g->channel + g->channels; c++)
        if (c->live && c->recovered) {
            c->recovered = false;
            channel_map_userd(g, c);
            return true;
        }
    g->recovered = false;
    return false;
}
