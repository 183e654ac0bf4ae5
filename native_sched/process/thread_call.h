/* Whether a thread is still in the ioctl() that it was let make.
 *
 * The kernel says in which call a thread waits (/proc/TID/syscall), and how long it has run
 * (/proc/TID/schedstat). One that waits nowhere is in the call until it has run for RAN_MAX_MS: so one that
 * gets no processor stays in it. */
#ifndef MGPU_THREAD_CALL_H
#define MGPU_THREAD_CALL_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct thread_call {
    pid_t tid;
    uint32_t cmd;
    uint64_t at, ran_ns;
};

/* Of a thread that waits in the call. */
struct thread_call thread_call_of(pid_t tid, uint32_t cmd, uint64_t at);
/* The thread is elsewhere, is stopped or has ended. False where the kernel does not say. */
bool thread_call_is_over(const struct thread_call *c);
#endif
