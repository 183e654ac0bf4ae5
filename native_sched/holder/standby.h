/* A worker that has loaded everything and waits to be called, so that the one after a death has nothing to
 * load. It has no connection to holder.sock and no descriptor but its line, on standard input: a byte calls
 * it, an end of file ends it. */
#ifndef MGPU_HOLDER_STANDBY_H
#define MGPU_HOLDER_STANDBY_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* AFTER: it loads once the one that serves has served so long, and is not short of the processor itself.
 * AGAIN: from one that ended by itself to the next. ANSWER: it closes its end of the line so soon after its
 * call. */
enum { STANDBY_AFTER_MS = 1000, STANDBY_AGAIN_MS = 10000, STANDBY_ANSWER_MS = 3000, STANDBY_END_MS = 1000 };

/* What the one that is called is from then on: its worker's process. */
struct called {
    pid_t pid;
    int pidfd, line;
};

/* The holder's option. */
extern bool standby_wanted;

/* Starts one when it is due; returns the ms until then, -1 for not by time. serves: somebody does. */
int64_t standby_look(int64_t now_ms, bool serves);
/* False without one that lives. */
bool standby_call(struct called *to);
/* Whether the one that was called has taken note. */
bool standby_answered(const struct called *c);
/* Its pidfd is readable. */
void standby_end(void);
/* Ends it, as when it is of a program that was replaced. The next comes by standby_look(). */
void standby_drop(void);
#endif
