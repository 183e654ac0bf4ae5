#ifndef MGPU_PROCESS_ID_H
#define MGPU_PROCESS_ID_H
#include <sys/types.h>

enum { PID_LEVELS = 4 };

/* A process as each pid namespace names it, from ours down to its own. */
struct process_id {
    pid_t tgid;
    int levels;
    pid_t at[PID_LEVELS]; /* at[0]: ours, which is tgid */
};
#endif
