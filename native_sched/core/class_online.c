#include "class.h"

/* Online is never closed. Without work it stays enabled, so that its first kernel starts at once: the
 * hardware's own timeslices bring it in before anything has been detected (design §4). */

static uint64_t open_at(const struct sched *s, const struct entity *e)
{
    (void)s;
    (void)e;
    return 0;
}

static enum sched_why closed_why(const struct sched *s, const struct entity *e)
{
    (void)s;
    (void)e;
    return WHY_NONE;
}

static uint64_t idle_until(const struct sched *s, const struct entity *e)
{
    (void)s;
    (void)e;
    return UINT64_MAX;
}

static bool occupies(const struct entity *e)
{
    return e->busy;
}

const struct sched_class class_online = {
    .id = SCHED_ONLINE,
    .name = "online",
    .wakeup_preempts = true,
    .open_at = open_at,
    .closed_why = closed_why,
    .idle_until = idle_until,
    .occupies = occupies,
};

const struct sched_class *const sched_classes[SCHED_CLASSES] = {
    [SCHED_ONLINE] = &class_online,
    [SCHED_OFFLINE] = &class_offline,
};
