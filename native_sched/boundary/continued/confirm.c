/* What continued calls have made: the driver is asked for it. */
#include "base/clock.h"
#include "native_sched/channels/groups.h"
#include "continued.h"
#include "private.h"
#include <errno.h>

enum { UNCONFIRMED_S = 10, ANSWER_MAX = 512 };

uint32_t confirm_count(const struct continued *l)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < UNCONFIRMED_MAX; i++)
        n += l->call[i].file != 0;
    return n;
}

static bool is_root(const struct unconfirmed *u)
{
    return rm_kind_of(u->class_id) == RM_KIND_ROOT;
}

/* A control that shows nothing and that objects of the class answer, and on that file only those of the
 * file's clients. RM looks for no object before it has compared the size, which is the class's own
 * (_rmapiRmControl()). */
static uint32_t question(const struct unconfirmed *u)
{
    switch (rm_kind_of(u->class_id)) {
    case RM_KIND_ROOT:
        return NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS;
    case RM_KIND_GPU_INSTANCE:
        return NVC637_CTRL_EXEC_PARTITIONS_GET_ACTIVE_IDS;
    default:
        return NVC638_CTRL_CMD_GET_UUID;
    }
}

/* 0 or 1, or a negative errno. */
static int is_there(const struct mediator *m, const struct open_file *file, const struct unconfirmed *u)
{
    _Alignas(16) uint8_t answer[ANSWER_MAX] = {0};
    const struct rm_target of = {.file = *file, .client = u->client, .rm = &m->rm};
    int bytes = rm_control_params(&m->rm, question(u)), e;

    if (bytes <= 0 || bytes > ANSWER_MAX)
        return -ENOTSUP;
    e = control_of_client(m->ops, m->driver, &of, is_root(u) ? u->client : u->handle, question(u), answer,
                          (uint32_t)bytes);
    if (e == 0)
        return 1;
    return e == -ESRCH || e == -ENOENT || rm_refused(e) ? 0 : e;
}

/* False for one that finds no room. */
static bool account_add(struct tenant *t, const struct unconfirmed *u)
{
    struct objects *o = &t->objects;
    WITH_TENANT(t);
    uint32_t parent = is_root(u) ? 0 : objects_find(o, u->client, u->parent);
    int64_t slot;

    if ((!is_root(u) && !parent) || objects_find(o, u->client, u->handle))
        return false;
    slot = objects_add(o, parent, u->client, u->handle, is_root(u) ? NV01_ROOT_CLIENT : u->class_id);
    if (slot < 0)
        return false;
    if (is_root(u)) {
        o->slot[slot].file = u->file;
        o->slot[slot].owner = u->who;
    }
    objects_commit(o, (uint32_t)slot);
    return true;
}

/* Files are never opened anew under the same name: it was open before, too. */
static bool is_open(const struct mediator *m, const struct open_file *file)
{
    struct rm_control none = {0}; /* NVXXXX_CTRL_CMD_NULL, which RM answers without a look at anything */

    return mediator_call(m, file, NULL, RM_CMD(NV_ESC_RM_CONTROL, sizeof(none)), &none, sizeof(none)) == 0;
}

bool confirm_made(const struct mediator *m, struct tenant *t, const struct open_file *file,
                  const struct unconfirmed *u)
{
    return is_there(m, file, u) == 1 && account_add(t, u);
}

int confirm(const struct mediator *m, struct tenant *t)
{
    bool had = confirm_count(t->continued), late = false;
    struct open_file file;
    int e;

    for_each_call(u, t->continued)
    {
        bool over, ends = u->file && monotonic_ns() - u->since_ns > UNCONFIRMED_S * 1000000000ull;

        if (!u->file)
            continue;
        over = thread_call_is_over(&u->by);
        if (!files_by_id(m->files, u->file, &file) || file.tenant != t) {
            u->file = 0;
        } else if ((e = is_there(m, &file, u)) == 1 && account_add(t, u)) {
            u->file = 0;
        } else {
            if (e < 0 && e != -EAGAIN) /* unlocated for now: it cannot be asked */
                return e;
            late |= e >= 0 && (ends || (over && e == 0 && is_open(m, &file)));
        }
    }
    if (late)
        return audit_violation(m, t, 0, UNKNOWN_BYTES);
    return had && !confirm_count(t->continued) ? groups_unconfirmed(t->groups, false) : 0;
}
