/* Calls of online containers that wait until offline containers have given memory back (docs/reclaim.md).
 *
 * A parked call has changed nothing and is not answered: its listener's thread goes on with other calls,
 * serves this one anew every PARKED_LOOK_MS, from the caller's memory, and gives it the driver's answer after
 * the mediator's evict_wait_ms. It is known by its notification; one that the kernel sends again after a
 * signal or the freezer takes the place of the first, by thread and arguments. The next mgpud finds the calls
 * in the listener's page. */
#ifndef MGPU_PARKED_H
#define MGPU_PARKED_H
#include "call.h"

/* PARKED_LENT_MS: how much later than the account the driver may have the memory of a closed file. */
enum { PARKED_MAX = 16, PARKED_LOOK_MS = 2, PARKED_LENT_MS = 1000 };

struct parked_call {
    struct seccomp_notif req; /* id 0, stored last: a free entry */
    uint64_t since_ns;        /* CLOCK_MONOTONIC */
    uint64_t lent_ns;         /* when others last had memory to give back */
};

struct parked_calls {
    struct parked_call call[PARKED_MAX];
};

/* The same in memory: what each call lacks. */
struct parking {
    struct parked_calls *calls;
    struct demand {
        struct ledger *ledger; /* NULL: none. Its card can be another one meanwhile. */
        struct card_memory *card;
        uint64_t bytes;
    } demand[PARKED_MAX];
    uint64_t serve_at_ns; /* when the calls are served anew */
};

/* Before the driver is asked: whether so much can be lacking on the ledger's card because of what others have
 * to give back. */
void parked_note_lent(struct call *c, const struct ledger *l, uint64_t bytes);

/* The answer to a call that the driver itself refuses for want of memory: parked, or that status.
 * bytes: of the card's memory, what it lacks at most; 0: it takes none, and lacks something else. */
struct answer parked_or(struct call *c, uint32_t card, uint64_t bytes, uint32_t status);

/* A call is about to be served: the entry where it is or can be parked, NULL where it cannot. */
struct parked_call *parked_enter(struct parking *p, const struct seccomp_notif *req, struct call *c);
bool parked_any(const struct parked_calls *p);
/* The calls are to be served anew by now. */
bool parked_due(struct parking *p);
void parked_keep(struct parking *p, struct parked_call *entry, const struct seccomp_notif *req,
                 const struct call *c);
/* The notification, to be served. */
void parked_take(const struct parked_call *entry, struct seccomp_notif *req);
/* It is answered, by whatever: how long it waited is counted. */
void parked_answer(struct parking *p, struct parked_call *entry, const struct call *c);
void parked_drop(struct parking *p, struct parked_call *entry, const struct call *c);
/* These calls lack nothing now. They stay where the next mgpud finds them. */
void parked_end(struct parking *p, const struct call *c);
#endif
