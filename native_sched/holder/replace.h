/* The holder replaces itself: execve of its program's path, with everything that is open and known. */
#ifndef MGPU_HOLDER_REPLACE_H
#define MGPU_HOLDER_REPLACE_H
#include "saved.h"
#include <stdint.h>

enum { TRIAL_MS = 2000 };

/* argv: main's. */
void replace_init(char **argv);
/* Tries the program out; if it knows how to go on, trial_end is where it begins. */
void replace_begin(void);
/* The trial is over: returns if the holder stays what it is. */
void trial_end(const struct own *own);
/* Puts an end to a trial that takes too long; returns the ms until that is due, -1 for never. */
int64_t replace_poll(int64_t now_ms);

/* In the new program. fd: the value of --resume. A negative errno when there is nothing to go on with. */
int replace_resume(const char *fd, struct own *own);
#endif
