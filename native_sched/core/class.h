/* What differs between online and offline. Policies know nothing of it, and classes nothing of policies. */
#ifndef MGPU_CLASS_H
#define MGPU_CLASS_H
#include "sched_types.h"

struct sched_class {
    enum sched_class_id id;
    const char *name;
    /* An entity that wakes up ends the turn of one that has run so much more (config: wakeup_granularity_ns).
     */
    bool wakeup_preempts;

    /* The instant from which the entity may run at all; UINT64_MAX: not before something happens. */
    uint64_t (*open_at)(const struct sched *s, const struct entity *e);
    /* While it is not open: why. */
    enum sched_why (*closed_why)(const struct sched *s, const struct entity *e);
    /* Without work: until when it is kept enabled; 0: not at all, UINT64_MAX: always. */
    uint64_t (*idle_until)(const struct sched *s, const struct entity *e);
    /* Enabled, it keeps others of its class off its cards. */
    bool (*occupies)(const struct entity *e);
};

/* The cards that the entity keeps offline off. */
static inline uint32_t online_work(const struct entity *e)
{
    return e->class->id == SCHED_ONLINE && !e->paused ? e->busy : 0;
}

extern const struct sched_class class_online, class_offline;
extern const struct sched_class *const sched_classes[SCHED_CLASSES];
#endif
