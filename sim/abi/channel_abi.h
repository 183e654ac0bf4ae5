/* What a channel's memory holds: the part of the simulated card that programs reach without a system call.
 *
 * A channel's USERD, its GPFIFO ring and the commands that the ring's entries name all lie in one memory
 * object of class 0x3e, named by userd_memory[0] of struct rm_channel: USERD at userd_offset[0], the ring at
 * gpfifo_offset, all in bytes from the start of the object. MAP_MEMORY of the object puts a file in the place
 * of the caller's fd which mmap()s at the offset that the call leaves in `linear`; the file cannot be
 * resized.
 *
 * A program writes commands, then a ring entry at GP_PUT % entries, then GP_PUT + 1 into USERD (both counters
 * run freely and wrap at 2^32), then rings: MAP_MEMORY of a usermode object (class 0xc361 and its like) puts
 * an eventfd in the place of the caller's fd, and write() of a uint64_t 1 to it is the doorbell: no program
 * can watch a page.
 *
 * That is so for channels whose parameters name neither a context share nor an address space. One that names
 * them has its ring and its work as NVIDIA's hardware takes them (gpu/push.h): gpfifo_offset is an address,
 * USERD may lie in video memory, and counters are places in the ring. Who maps more than a page of a usermode
 * object gets the region of registers. */
#ifndef MGPU_SIM_CHANNEL_ABI_H
#define MGPU_SIM_CHANNEL_ABI_H
#include <stdint.h>

enum { SIM_RING_ENTRIES_MAX = 4096, SIM_MEMORY_BYTES_MAX = 1 << 30 }; /* entries: a power of two */

struct sim_ring_entry {
    uint32_t offset;   /* of the first command, in bytes, 8-aligned */
    uint32_t commands; /* one after the other; a graph is one entry of many commands */
};

enum sim_op_code {
    SIM_CMD_KERNEL = 1,  /* a: duration in ns. Preempted, it goes on where it stopped */
    SIM_CMD_COPY = 2,    /* a: bytes; takes the time the card's profile says */
    SIM_CMD_ACQUIRE = 3, /* waits until (int32_t)(value - b) >= 0 for the semaphore at byte a of `memory` */
    SIM_CMD_RELEASE =
        4, /* sets the semaphore at byte a of `memory` to b with the time, then futex-wakes `value` */
};

struct sim_command {
    uint32_t op;
    uint32_t memory; /* ACQUIRE, RELEASE: handle of a 0x3e object of the same client; 0 = the channel's own */
    uint64_t a, b;
};

struct sim_semaphore {
    uint32_t value, pad;   /* value is a futex word, shared between processes */
    uint64_t timestamp_ns; /* CLOCK_MONOTONIC, as the engine counts it */
};

enum sim_engine_index { SIM_ENGINE_GRAPHICS, SIM_ENGINE_COPY, SIM_ENGINES };

/* The card's registers, read-only for programs that map them. What RM says of them: its controls ARCH_INFO
 * and GPU_GET_ENGINE_RUNLIST_PRI_BASE, which has nothing to say before Ampere. */
enum { SIM_BAR0_BYTES = 1 << 20, SIM_RUNLISTS_MAX = 64 };
struct sim_registers {
    uint32_t architecture, implementation, runlists, pad;
    struct {
        uint64_t engines; /* whose groups are on it: a bit each, by their numbers */
        uint32_t base, pad;
    } runlist[SIM_RUNLISTS_MAX];
};
#endif
