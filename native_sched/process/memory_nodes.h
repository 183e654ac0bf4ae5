/* From which NUMA nodes the kernel takes the host's memory for a thread, and for us while we call for it.
 *
 * A driver's pages are for the thread that makes the ioctl: by its memory policy, within its cpuset, and else
 * of the node whose processor it is on. From 590.44 on RM keeps freed pages by node and takes them by the
 * processor alone (nv_alloc_system_pages()). So a call for another thread is made by its policy, on a
 * processor of its node. What of this cannot be read or set stays ours: the memory is farther away, and no
 * less. */
#ifndef MGPU_MEMORY_NODES_H
#define MGPU_MEMORY_NODES_H
#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

/* cpu_set_t is a set of numbers up to 1023: of processors, and here of nodes too. */
struct memory_nodes {
    int mode; /* as set_mempolicy() has it */
    cpu_set_t nodes;
    int home; /* the node on whose processors the call is made */
};

/* policy: a line of the thread's numa_maps; own: the node that it runs on. A node is preferred, also where
 * the thread is bound to it: a call for want of memory of one node must kill nobody. */
struct memory_nodes memory_nodes_choose(const char *policy, const cpu_set_t *allowed, int own);

struct borrowed_nodes {
    bool borrowed;
    cpu_set_t processors;
};
/* Until given back, memory for this thread comes from where it would for thread tid. Nothing is done on a
 * machine of one node. */
struct borrowed_nodes memory_nodes_borrow(pid_t tid);
void memory_nodes_give_back(const struct borrowed_nodes *was);
#define WITH_MEMORY_NODES_OF(tid)                   \
    __attribute__((cleanup(memory_nodes_give_back), \
                   unused)) struct borrowed_nodes borrowed_until_here = memory_nodes_borrow(tid)
#endif
