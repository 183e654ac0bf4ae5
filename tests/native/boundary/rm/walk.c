/* Which functions are entered on two ways, by gcc's -finstrument-functions: a call, from the listener's first
 * look at it on, and a turn of the scheduler's in which a channel group's driver was asked for something. */
#include "native_sched/loop/poll.h"
#include "native_sched/nvidia/boundary/call/parked.h"
#include "native_sched/nvidia/driver/rm_control.h"

#define QUIET __attribute__((no_instrument_function))
/* libc has functions of these names, which do nothing. */
#define OURS __attribute__((visibility("hidden")))

/* step: where a function begins in this library; 0: the last one returns. */
static struct way {
    uint32_t step[1 << 16], steps;
    bool asked;
} call, turn, asking_turn;
static _Thread_local struct way *walked;
extern const char __ehdr_start[] OURS;

QUIET static void note(uint32_t step)
{
    if (walked && walked->steps < sizeof(walked->step) / sizeof(*walked->step))
        walked->step[walked->steps++] = step;
}

OURS void __cyg_profile_func_enter(void *function, void *from);
QUIET void __cyg_profile_func_enter(void *function, void *from)
{
    (void)from;
    note((uint32_t)((const char *)function - __ehdr_start));
}

OURS void __cyg_profile_func_exit(void *function, void *from);
QUIET void __cyg_profile_func_exit(void *function, void *from)
{
    (void)function;
    (void)from;
    note(0);
}

QUIET static void begin(struct way *way)
{
    way->steps = 0;
    way->asked = false;
    walked = way;
}

struct parked_call *__real_parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c);
struct parked_call *__wrap_parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c);
QUIET struct parked_call *__wrap_parked_enter(struct parking *p, const struct seccomp_notif *req,
                                              struct call *c)
{
    begin(&call);
    return __real_parked_enter(p, req, c);
}

void __real_loop_poll(struct loop *l);
void __wrap_loop_poll(struct loop *l);
QUIET void __wrap_loop_poll(struct loop *l)
{
    if (turn.asked)
        asking_turn = turn;
    begin(&turn);
    __real_loop_poll(l);
}

int __real_control_of_client(const struct driver_ops *ops, struct driver *d, const struct rm_target *target,
                             uint32_t object, uint32_t cmd, void *params, uint32_t bytes);
int __wrap_control_of_client(const struct driver_ops *ops, struct driver *d, const struct rm_target *target,
                             uint32_t object, uint32_t cmd, void *params, uint32_t bytes);
QUIET int __wrap_control_of_client(const struct driver_ops *ops, struct driver *d,
                                   const struct rm_target *target, uint32_t object, uint32_t cmd,
                                   void *params, uint32_t bytes)
{
    turn.asked |= walked == &turn;
    return __real_control_of_client(ops, d, target, object, cmd, params, bytes);
}

const uint32_t *walked_call(uint32_t *steps);
QUIET const uint32_t *walked_call(uint32_t *steps)
{
    *steps = call.steps;
    return call.step;
}

const uint32_t *walked_turn(uint32_t *steps);
QUIET const uint32_t *walked_turn(uint32_t *steps)
{
    *steps = asking_turn.steps;
    return asking_turn.step;
}
