/* One connection of a container runtime to seccomp.sock, until its message is complete. */
#ifndef MGPU_HOLDER_INTAKE_H
#define MGPU_HOLDER_INTAKE_H
#include "json_end.h"
#include "table.h"

/* crun connects before it makes its filter, which takes seconds where many containers start at once. */
enum { INTAKE_MAX = 128, INTAKE_TIMEOUT_MS = 30000 };

struct intake {
    int fd; /* -1: free */
    int listener;
    int64_t deadline_ms;
    struct json_end scan;
    char *text;
    size_t bytes;
};

void intake_open(struct intake *in, int fd, int64_t now_ms);
void intake_close(struct intake *in);

/* Reads what has arrived. 0: incomplete. 1: complete, with listener and text set. Negative errno: give up. */
int intake_read(struct intake *in);
#endif
