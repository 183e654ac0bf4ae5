/* Calls that were carried out while a signal tore their caller out of the wait. The kernel sends such a call
 * again (SA_RESTART) under a new id; done twice, an allocation would be made and counted twice. The result of
 * a call that changes something is kept by thread, file, arguments and content, and handed over when the same
 * call comes again. Belongs to one listener's thread.
 *
 * That an answer was accepted does not end the story: a signal that has ended the wait already, while the
 * kernel still waits for the lock that the answer holds, wins over it (seccomp_do_user_notification():
 * "interrupted" is decided before the lock is taken). Such an answer holds until the thread's next call, or
 * another thread's that undoes it. Nearly all calls leave such an answer and hardly any is asked for again,
 * so where there is no room for more, the oldest of them goes; one that was not accepted is certain to be
 * asked for, unless its thread ended. */
#ifndef MGPU_REPLAY_H
#define MGPU_REPLAY_H
#include "call.h"

enum { REPLAY_SLOTS = 32 };

struct replay {
    uint64_t kept; /* so far */
    struct replay_entry {
        uint32_t tid, cmd; /* tid 0: empty; stored last, for the next mgpud may read this */
        uint64_t number;   /* the higher, the later it was kept */
        uint64_t fd, at, params_at;
        uint32_t outer_bytes, params_bytes, params_check, params_check_after;
        bool written;   /* the caller's memory holds the result already */
        bool accepted;  /* so did the kernel */
        uint64_t begun; /* no result: the previous mgpud ended in the middle of it, when it was notified so */
        uint64_t file;
        _Alignas(16) uint8_t before[KEPT_OUTER_MAX]; /* the outer struct as the caller passed it */
        _Alignas(16) uint8_t outer[KEPT_OUTER_MAX],
            params[KEPT_PARAMS_MAX]; /* what it must hold afterwards */
    } entry[REPLAY_SLOTS];
};

/* `before`: the outer struct as the caller passed it. written: its memory already holds the result. accepted:
 * so did the kernel. */
void replay_keep(struct replay *r, const struct seccomp_notif *req, const struct call *c,
                 const uint8_t *before, bool written, bool accepted);

/* The call is made anew when its thread sends it again, and is told that some of it may be there
 * (call.again). */
void replay_keep_begun(struct replay *r, const struct seccomp_notif *req, const struct call *c,
                       const uint8_t *before, uint64_t begun);

/* True when this very call was carried out before: c then holds what to write back. */
bool replay_find(struct replay *r, const struct seccomp_notif *req, struct call *c);
#endif
