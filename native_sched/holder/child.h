/* mgpud as a child of the holder, where there is no systemd: started, and restarted when it ends. */
#ifndef MGPU_HOLDER_CHILD_H
#define MGPU_HOLDER_CHILD_H
#include "standby.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PAUSE: before mgpud is started again once it has ended young more than once in a row; it doubles.
 * START: longer than mgpud takes until it serves. STOP and KILL: from SIGTERM to SIGKILL, and from there
 * on. */
enum {
    CHILDREN_MAX = 2,
    PAUSE_FIRST_MS = 50,
    PAUSE_MAX_MS = 5000,
    YOUNG_MS = 10000,
    START_MAX_MS = 60000,
    STOP_MS = 2000,
    KILL_MS = 1000,
    LOCK_POLL_MS = 50,
};

struct child {
    pid_t pid;
    int pidfd; /* -1: free */
    int64_t started_ms;
    bool ready;
    struct standby_process called; /* line -1: it was not called, or has answered */
};

struct children {
    const char *lock; /* mgpud's; while it is held, the previous holder's mgpud is waited for */
    struct child child[CHILDREN_MAX]; /* two while one takes over from the other */
    uint32_t young_ends;              /* in a row */
    int64_t start_ms;                 /* the next start */
    int64_t patience_ms;              /* for the process with the lock, which is fenced off then; -1: over */
    bool ever_ready;
};

extern struct children children;

/* A free one; NULL: there is none. */
static inline struct child *child_slot(void)
{
    for (struct child *c = children.child; c < children.child + CHILDREN_MAX; c++)
        if (c->pidfd < 0)
            return c;
    return NULL;
}

void children_init(void);
/* Watches the children that are known already. */
void children_watch(void);
/* The mgpud with that pid serves. */
void child_ready(pid_t pid);
/* Starts another, which takes over from the mgpud that serves. */
void child_renew(void);
/* -1, or the holder's exit status: the first mgpud ever refuses to start. */
int child_end(unsigned int which);
/* Starts mgpud when that is due; returns the ms until it is due again, -1 for never. */
int64_t children_poll(int64_t now_ms);
/* Ends mgpud, also one that another process started, and waits for that. */
void children_stop(void);
#endif
