/* Managed memory: ranges of nvidia-uvm that mmap() makes, and whose pages the card's faults bring in. The
 * driver counts them to no process, so what is mapped is charged, on each card that the container holds.
 *
 * mmap() runs in its caller. Its registers name the range (a managed range lies at the address that is its
 * offset: uvm_mmap() of NVIDIA's open-gpu-kernel-modules), but another thread can change the file behind the
 * descriptor. So a call on a file of nvidia-uvm is charged before it runs, whatever it does. A call on
 * another file is continued uncharged: until it ends, the map of its process is read at that address before
 * each answer to the tenant.
 *
 * munmap() is not notified. The process's map is the truth: a charge above it is released, a mapping above
 * the charge is charged, and a tenant without room for that is in violation. A poll holds `calls`: anything
 * mapped during it is already charged or belongs to a call in flight.
 *
 * Descriptors of its map and memory name an address space for ever, whatever becomes of its processes. Fixed
 * capacity; no allocation after managed_open(). */
#ifndef MGPU_MANAGED_H
#define MGPU_MANAGED_H
#include "native_sched/nvidia/boundary/call/call.h"

enum { MANAGED_SPACES = 128, MANAGED_CALLS = 1024 };

/* An address space with managed memory, or with a call that may bring some. */
struct managed_space {
    uint32_t check;  /* of all up to `bytes`, stored last; 0: a free slot */
    pid_t tid;       /* a thread that had it */
    uint64_t number; /* the highest of a process's is the last that was found */
    struct process_id who;
    uint64_t bytes; /* charged, on each card; changes by itself */
};

/* A continued call that may not have ended. */
struct managed_call {
    pid_t tid;              /* 0: a free entry */
    uint32_t address_space; /* its slot plus 1; 0: memory of nvidia-uvm was not asked for there yet */
    bool charged;
    uint64_t base, bytes;
};

/* Where the journal has it. */
struct managed_page {
    uint64_t last_number;
    bool begun; /* a file of nvidia-uvm was to be initialised */
    struct managed_space address_space[MANAGED_SPACES];
    struct managed_call call[MANAGED_CALLS];
};

struct managed {
    struct managed_page *page;
    struct store store;
    struct managed_handle {
        int map, memory;
    } handle[MANAGED_SPACES];
    atomic_bool begun;   /* the page's */
    atomic_bool due;     /* a call runs that was not charged */
    atomic_bool watched; /* there is something to look at now and then */
    uint64_t bytes;      /* charged, of all spaces */
};

/* In the journal's folder, or in memory that ends with us (-1). */
int managed_open(struct tenant *t, int folder);
void managed_close(struct managed *g);
/* The same, and no mgpud is to take it over. */
void managed_remove(struct managed *g);
/* What the journal calls it. */
void managed_name(uint64_t tenant, char name[STORE_NAME_MAX]);

/* A notified mmap(). */
struct answer managed_mmap(struct call *c, const struct seccomp_data *d);

/* UVM_INITIALIZE: continued, with the caller's flags corrected. */
struct answer managed_initialize(struct call *c);
/* 0: the file was initialised with the flags that we demand, and stays so. -ENODATA: it was not; -EPERM: with
 * others, which is a violation; another errno: the driver cannot be asked now. */
int managed_initialized(const struct mediator *m, struct tenant *t, const struct open_file *file);

/* Before a call of the tenant is served or answered. -EPERM: it is in violation. */
int managed_reconcile(struct call *c);
static inline bool managed_reconciled(const struct tenant *t)
{
    return !t->managed || !atomic_load_explicit(&t->managed->due, memory_order_acquire);
}

/* Compares what is charged with what is mapped; true when something was given back. */
bool managed_reconcile_space(const struct mediator *m, struct tenant *t);
/* The same if no thread holds the tenant's calls, and there is something to compare. */
void managed_poll(const struct mediator *m, struct tenant *t);

/* What is charged on each of its cards. */
uint64_t managed_held(const struct tenant *t);
#endif
