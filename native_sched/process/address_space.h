/* An address space of a tenant's, from outside: descriptors of the map and of the memory of a process name it
 * for ever, while the process may exec() and others may have it too (CLONE_VM). */
#ifndef MGPU_ADDRESS_SPACE_H
#define MGPU_ADDRESS_SPACE_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Both descriptors, of the memory that the thread has now. -ESRCH. */
int address_space_open(pid_t tid, int *map, int *memory);
/* True if a process has it, which need not be the one that it was opened of. */
bool address_space_lives(int memory);
/* True if both threads have the same one now. */
bool address_space_same(pid_t one, pid_t other);

/* The thread has exited, or waits in another system call than this one. False where that is not known. */
bool thread_returned(pid_t tid, long system_call);
#endif
