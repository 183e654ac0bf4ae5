/* Container runtimes that are connected to seccomp.sock, each until its message is complete. */
#ifndef MGPU_HOLDER_RUNTIMES_H
#define MGPU_HOLDER_RUNTIMES_H
#include "intake.h"

extern struct intake intakes[INTAKE_MAX];

/* INTAKE_MAX: none is free. */
static inline unsigned int free_intake(void)
{
    unsigned int i = 0;

    while (i < INTAKE_MAX && intakes[i].fd >= 0)
        i++;
    return i;
}

void runtimes_init(void);
/* Watches those that are connected already. */
void runtimes_watch(void);
void runtimes_accept(int listening);
void runtime_read(unsigned int which);
/* Does what is due; returns the ms until the next is due, -1 for never. */
int64_t runtimes_poll(int64_t now_ms);
#endif
