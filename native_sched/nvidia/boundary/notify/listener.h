/* One thread per seccomp listener: receives notifications, has them mediated, answers.
 *
 * The listener a notification arrives on is the tenant's identity: not its cgroup, environment or pid. */
#ifndef MGPU_LISTENER_H
#define MGPU_LISTENER_H
#include "native_sched/nvidia/boundary/call/call.h"
#include <stdatomic.h>

struct listener {
    const struct mediator *m;
    struct tenant *tenant;
    int fd;
    int ended; /* eventfd, written when the thread is about to end */
    pthread_t thread;
    atomic_bool done;    /* the thread has ended its work: join it */
    atomic_bool hung_up; /* set from outside: end */
    struct listener *next;
    struct store store; /* its struct listener_page */
    struct listener_stats stats;
};

/* Starts the thread, which first answers what the previous mgpud left unanswered. The owner keeps fd open
 * until the thread is joined. 0 or a negative errno. */
int listener_start(struct listener *l);

/* Ends a thread that may be blocked in RECV. The signal can come a moment too early: repeat until done. */
void listener_interrupt(struct listener *l);
#endif
