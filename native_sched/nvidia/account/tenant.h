/* A tenant: one granted container. Its cards and caps, its RM objects, the device nodes it was given. */
#ifndef MGPU_TENANT_H
#define MGPU_TENANT_H
#include "base/mutex.h"
#include "native_sched/core/ledger.h"
#include "native_sched/core/utilization.h"
#include "native_sched/process/process_id.h"
#include "native_sched/process/thread_call.h"
#include "objects.h"
#include "stats.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { MAX_CARDS = MGPU_CARDS_MAX, MAX_TENANTS = 1024, TENANT_MAX_NODES = MAX_CARDS + 4 };

struct card {
    uint32_t index, minor, gpu_id, device_instance;
    uint32_t gpu_instance, compute_instance; /* of MIG; RM_NO_INSTANCE: it is a card as a whole */
    uint64_t memory_bytes;
    /* What the driver itself takes for one channel group, a measured constant: of the graphics engine, of a
     * copy engine. */
    uint64_t context_bytes, copy_context_bytes;
    uint8_t uuid[16]; /* zeros: nvidia-uvm does not name it so */
};

enum node_kind { NODE_CTL, NODE_CARD, NODE_UVM };

/* A card that the tenant left: its node serves no more. */
enum { NODE_LEFT = UINT32_MAX };

struct tenant_node { /* a device node inside the container, by identity of the file */
    dev_t dev;
    ino_t ino;
    enum node_kind kind;
    uint32_t minor; /* read without a lock */
};

struct groups;
struct external;
struct managed;

/* A call that was continued and whose object the driver is not known to have made (continued.h). */
struct unconfirmed {
    uint64_t file; /* that the object is made on; 0: there is no such call */
    uint32_t client, parent, handle, class_id;
    struct process_id who; /* its caller */
    struct thread_call by;
    uint64_t notification, since_ns;
    /* No kernel was told to let it go on: what is not there by the next mgpud was never made. False in the
     * journal of an mgpud that did not note it. */
    bool unsent;
};

struct tenant {
    uint64_t id; /* 0: the slot is free */
    /* Unrecovered: the previous mgpud's, which could not be taken over. It has no account and gets no
     * service. It keeps its slot and its open files until the last of them is closed. Guarded by `calls`,
     * written under the engine's lock. */
    bool lost;
    /* Held over a whole call that makes or frees objects, the driver's part included: the account follows
     * what the driver did, in its order, whichever of the tenant's listeners a call came by. Taken before
     * `lock`. */
    pthread_mutex_t calls;
    /* close_wait.h: guarded by `calls`. 0: no call waits. CLOCK_MONOTONIC. */
    pthread_cond_t file_closed;
    uint64_t close_wait_since_ms;
    pthread_mutex_t lock; /* guards everything below */
    bool granted[MAX_CARDS];
    atomic_bool whole;        /* it holds these cards alone; read without the lock */
    atomic_uint capabilities; /* a set of enum rm_capability; likewise */
    struct ledger ledger[MAX_CARDS];
    struct objects objects;
    struct tenant_node node[TENANT_MAX_NODES];
    uint32_t nodes, listeners;
    uint32_t last_handle; /* of those that we choose */
    /* Of its processes; 0: not known, or ours. The look that last saw a stranger. By the engine's lock. */
    ino_t pid_space;
    bool ended; /* its container: what is in that namespace from now on is another's */
    uint64_t suspected_at;
    struct tenant_stats stats;
    /* Guarded by the file table's lock; closing: taken out of it, and still charged. */
    uint32_t files, files_closing;
    struct groups *groups;           /* its own lock, taken last */
    struct utilization *utilization; /* without a lock */
    struct unconfirmed *unconfirmed; /* guarded by `calls` */
    struct external *external;       /* external.h; NULL: nothing is mapped by nvidia-uvm */
    struct managed *managed;         /* managed.h: memory that cards' faults bring in */
    struct store store;              /* what the next mgpud needs: unconfirmed and the objects' slots */
    /* The last poll of managed memory, and the last audit. Guarded by the engine's lock. */
    uint64_t polled_ns, poll_took_ns, audited_ns;
    atomic_bool audit_due; /* a continued call is unconfirmed, or the previous mgpud may have left one */
    /* Not 0: it holds so much more than it was charged for, and is no longer served. */
    _Atomic uint64_t unaccounted_bytes;
};

/* Hold the tenant, or the order of its calls, until the end of the scope. */
#define WITH_TENANT(t)   LOCKED_(tenant_held, &(t)->lock)
#define WITH_CALLS_OF(t) LOCKED_(calls_held, &(t)->calls)
#endif
