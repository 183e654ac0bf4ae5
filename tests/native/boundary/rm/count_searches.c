/* In the place of the look-ups of native_sched/nvidia/rm/table.h and of a call's way (ld's --wrap): how many
 * rows the last call was searched for. The scheduler's thread searches for its own. */
#include "native_sched/nvidia/boundary/call/parked.h"

static _Thread_local bool serves;
static atomic_uint searched;

uint32_t searches(void)
{
    return atomic_load(&searched);
}

/* names: whether there is a number to search for. */
#define COUNTED(type, name, parameters, names, ...)  \
    type __real_##name parameters;                   \
    type __wrap_##name parameters;                   \
    type __wrap_##name parameters                    \
    {                                                \
        atomic_fetch_add(&searched, serves &&names); \
        return __real_##name(__VA_ARGS__);           \
    }
COUNTED(const struct rm_row *, rm_command_row, (const struct rm_table *t, uint32_t cmd), true, t, cmd)
COUNTED(const struct rm_row *, rm_class_row, (const struct rm_table *t, uint32_t id), true, t, id)
COUNTED(const struct rm_row *, rm_control_row, (const struct rm_table *t, uint32_t cmd), true, t, cmd)
COUNTED(const struct rm_row *, rm_params_row,
        (const struct rm_table *t, const struct rm_row *command, const void *outer),
        (command->class_at || command->control_at), t, command, outer)
COUNTED(bool, rm_is_watched, (uint32_t cmd), true, cmd)

/* The driver is asked again then, for what the caller has made by itself. */
void __real_continued_sent(struct call *c, bool accepted);
void __wrap_continued_sent(struct call *c, bool accepted);
void __wrap_continued_sent(struct call *c, bool accepted)
{
    serves = false;
    __real_continued_sent(c, accepted);
}

/* With this a call begins. */
struct parked_call *__real_parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c);
struct parked_call *__wrap_parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c);
struct parked_call *__wrap_parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c)
{
    serves = true;
    atomic_store(&searched, 0);
    return __real_parked_enter(p, req, c);
}
