/* What the files of continued.h share. */
#ifndef MGPU_CONTINUED_PRIVATE_H
#define MGPU_CONTINUED_PRIVATE_H
#include "native_sched/nvidia/boundary/objects/handles.h"

enum { PROCESSES_MAX = 1024 };

struct processes {
    pid_t tgid[PROCESSES_MAX];
    uint32_t count;
    bool overflow;
};

/* Every process to which the driver may count memory of the tenant. */
void processes_of(struct tenant *t, struct processes *out);
void processes_note(struct processes *p, pid_t tgid);

/* 1: the driver has what the unconfirmed call was to make, and now the account. 0: not, or not yet. -ENOENT:
 * its file is closed. */
int confirm_look(const struct mediator *m, struct tenant *t);
/* Takes into the account what the unconfirmed call has made. over: its thread is known to have left it. 1: it
 * has made something else, or may have. */
int confirm(const struct mediator *m, struct tenant *t, bool over);
/* The same until there is none but the call's own; the tenant's calls are not held meanwhile. -EINTR: its
 * caller waits no longer. */
int confirm_wait(struct call *c);
/* The call has made nothing, or what it has made is in the account. */
void confirm_forget(const struct mediator *m, struct tenant *t);
/* Its container is in violation, so the driver is not asked what the call has made. */
void confirm_end(const struct mediator *m, struct tenant *t);
#endif
