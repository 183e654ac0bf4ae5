/* Which files of nvidia-uvm are initialised. A call is let through on the file that its descriptor was when we looked, and made on
 * the one that it is when the kernel does: INITIALIZE too, with which all that a file can retain begins. So a tenant could have
 * a file that we have never seen.
 *
 * A call initialises one file, and a file is initialised once (uvm_api_initialize() of NVIDIA's open-gpu-kernel-modules). So the
 * call is let through on a file alone that is not initialised yet, one at a time, and when it is over that file is. If it is not,
 * the call was made on another one, or failed: it is `astray`, and what the tenant's files are asked says nothing any more, until
 * the kernel says that no file of nvidia-uvm is open but those that we know.
 *
 * The tenant's calls are held for all of it. It is part of what registered.h keeps. */
#ifndef MGPU_INITIALIZE_H
#define MGPU_INITIALIZE_H
#include "mediate.h"

enum { INITIALIZING_MAX = 64 };

struct initializing {
    uint64_t file, notification;
    pid_t thread;   /* 0: a free entry */
    uint32_t ended; /* the file has, not initialised */
};

/* Where the journal has it. */
struct initialize_calls {
    uint32_t astray;
    struct initializing call[INITIALIZING_MAX];
};

/* INITIALIZE, on its way into the kernel. As mediate(). */
int initialize(struct call *c);
/* It has not come there: the caller was torn away by a signal, or an earlier worker ended before it had answered. */
void initialize_withdrawn(struct call *c);

/* Which calls have ended, the caller's among them, and on which files they were made. True: some are under way. */
bool initialize_look(const struct mediator *m, struct initialize_calls *calls, pid_t caller);
/* The file is gone. */
void initialize_file_gone(struct initialize_calls *calls, const struct open_file *file);
/* Some are under way, by what was last looked at. */
bool initialize_runs(const struct initialize_calls *calls);
/* There is, or may be, an initialised file that we do not know. */
bool initialize_unsure(const struct initialize_calls *calls);
/* The file was initialised, or may be at any moment. */
bool initialize_matters(const struct initialize_calls *calls, const struct open_file *file);
#endif
