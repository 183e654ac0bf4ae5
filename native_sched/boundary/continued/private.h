/* What the files of continued.h share. */
#ifndef MGPU_CONTINUED_PRIVATE_H
#define MGPU_CONTINUED_PRIVATE_H
#include "native_sched/boundary/objects/handles.h"

enum { PROCESSES_MAX = 1024, ROOM_WAIT_MS = 1000 };
/* What `unaccounted_bytes` says of a call that has made no one knows what. */
enum { UNKNOWN_BYTES = 1 };

#define for_each_call(u, l) for (struct unconfirmed *u = (l)->call; u < (l)->call + UNCONFIRMED_MAX; u++)

struct processes {
    pid_t tgid[PROCESSES_MAX];
    uint32_t count;
    bool overflow;
};

/* Every process to which the driver may count memory of the tenant. */
void processes_of(struct tenant *t, struct processes *out);
void processes_note(struct processes *p, pid_t tgid);

uint32_t confirm_count(const struct continued *l);
/* Takes into the account what has been made since. */
int confirm(const struct mediator *m, struct tenant *t);
/* Takes it into the account if the driver has it. */
bool confirm_made(const struct mediator *m, struct tenant *t, const struct open_file *file,
                  const struct unconfirmed *u);

/* The tenant has more than its account. -EPERM. */
int audit_violation(const struct mediator *m, struct tenant *t, uint32_t card, uint64_t bytes);
#endif
