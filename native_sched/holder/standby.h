/* An mgpud that has loaded everything and waits to be called, so that the next one after a death has nothing
 * to load. It has no connection to holder.sock and no descriptor but its line, on standard input: a byte
 * calls it, an end of file ends it. */
#ifndef MGPU_HOLDER_STANDBY_H
#define MGPU_HOLDER_STANDBY_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* AFTER: it loads once the mgpud that serves has served so long, and no longer needs the processor itself.
 * AGAIN: from a standby that ended by itself to the next. ANSWER: it closes its end of the line so soon after
 * its call. */
enum { STANDBY_AFTER_MS = 1000, STANDBY_AGAIN_MS = 10000, STANDBY_ANSWER_MS = 3000, STANDBY_END_MS = 1000 };

struct standby_process {
    pid_t pid;
    int pidfd; /* -1: there is none */
    int line;  /* -1: there is none, or it has answered its call */
};

extern struct standby {
    bool wanted; /* the holder's option */
    struct standby_process process;
    int64_t due_ms; /* the next start; -1: AFTER an mgpud serves */
} standby;

/* Starts one when it is due; returns the ms until then, -1 for not by time. serves: an mgpud does. */
int64_t standby_poll(int64_t now_ms, bool serves);
/* Calls it, and hands its process over. False without one that lives. */
bool standby_call(struct standby_process *to);
/* Whether the process that was called has closed its end of the line. */
bool standby_answered(const struct standby_process *p);
/* Its pidfd is readable. */
void standby_end(void);
/* Ends it, as when it is of a program that was replaced. The next comes by standby_poll(). */
void standby_drop(void);
#endif
