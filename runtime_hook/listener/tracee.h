/* A stopped process that makes system calls for us. */
#ifndef MGPU_LISTENER_TRACEE_H
#define MGPU_LISTENER_TRACEE_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

struct tracee {
    pid_t tid;
    struct user_regs_struct registers; /* as it was found */
};

/* A negative errno. Its filters do not see the calls that it makes for us. */
int tracee_seize(struct tracee *tracee, pid_t tid);
/* Lets the process go on as it was found: still stopped if it was. */
void tracee_leave(const struct tracee *tracee);
/* The call's result: a negative errno where it fails, or where it cannot be made. */
long tracee_call(const struct tracee *tracee, long number, uint64_t first, uint64_t second, uint64_t third);
/* Room below its stack, 16-aligned, where nothing of its own is. */
uint64_t tracee_room(const struct tracee *tracee, size_t bytes);
int tracee_write(const struct tracee *tracee, uint64_t at, const void *data, size_t bytes);
#endif
