/* Container runtimes that are connected to seccomp.sock, each until its message is complete. */
#ifndef MGPU_HOLDER_RUNTIMES_H
#define MGPU_HOLDER_RUNTIMES_H
#include "intake.h"

extern struct intake intakes[INTAKE_MAX];

void runtimes_init(void);
/* Those that are known already. */
void runtimes_watch(void);
void runtimes_accept(int listening);
void runtime_read(unsigned int which);
/* What is due by time; returns the ms until it is due again, -1 for never. */
int64_t runtimes_look(int64_t now_ms);
#endif
