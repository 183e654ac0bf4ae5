/* mgpud as a child of the holder, where there is no systemd: started, and restarted when it ends. */
#ifndef MGPU_HOLDER_CHILD_H
#define MGPU_HOLDER_CHILD_H
#include "standby.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* PAUSE: before the worker is started again once it has ended young more than once in a row; it doubles.
 * START: longer than it takes a worker to serve. STOP and KILL: from SIGTERM to SIGKILL, and from there
 * on. */
enum {
    CHILDREN_MAX = 2,
    PAUSE_FIRST_MS = 50,
    PAUSE_MAX_MS = 5000,
    YOUNG_MS = 10000,
    START_MAX_MS = 60000,
    STOP_MS = 2000,
    KILL_MS = 1000,
    LOCK_LOOK_MS = 50,
};

struct child {
    pid_t pid;
    int pidfd; /* -1: free */
    int64_t started_ms;
    bool ready;
    struct called called; /* line -1: it was not, or has answered */
};

struct children {
    const char *lock; /* the worker's; while it is held, a worker of the holder before is waited for */
    struct child child[CHILDREN_MAX]; /* two while one takes over from the other */
    uint32_t young_ends;              /* in a row */
    int64_t start_ms;                 /* the next start */
    int64_t patience_ms;              /* for whoever holds the lock, then it is fenced off; -1: over */
    bool ever_ready;
};

extern struct children children;

void children_init(void);
/* Those that are known already. */
void children_watch(void);
/* The worker with that pid serves. */
void child_ready(pid_t pid);
/* Starts another, which takes over from the worker that serves. */
void child_renew(void);
/* -1, or what the holder is to exit with: the first worker ever refuses to start. */
int child_end(unsigned int which);
/* Starts the worker when that is due; returns the ms until it is due again, -1 for never. */
int64_t children_look(int64_t now_ms);
/* Ends the worker, whoever started it, and waits for that. */
void children_stop(void);
#endif
