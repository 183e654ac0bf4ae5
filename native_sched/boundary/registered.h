/* Channels that nvidia-uvm may retain. REGISTER_CHANNEL duplicates a channel's group into UVM's own client, and what the driver
 * takes for the group by itself stays until the channel is unregistered or the file closed, however early both are freed
 * (nvGpuOpsRetainChannel() of NVIDIA's open-gpu-kernel-modules).
 *
 * The call runs in its caller: which channel it registers, and on which file, is another thread's last word. So nothing is
 * believed of it but that it runs, from its CONTINUE until its thread calls again or is no more. It is a file that has the channel's
 * address space, one of the tenant's own (gpu_vaspace.c). When the driver has ended a channel, all of these are told to
 * unregister it, by its name. What has no name any more can be
 * registered no more, so that a channel is no longer retained once all of them have answered after the last call that ran
 * then has ended. Until that has been seen it is in this table, and the charge of its group outlives the group.
 *
 * A group to which a flipped call may have added a channel without a name (let_through.h) is in the table by itself, until
 * that call has turned out to be another, or the files of nvidia-uvm that were open then are closed.
 *
 * Where the tenant may have a file of nvidia-uvm that we do not know (initialize.h), no answer is enough, and all of this stays
 * charged.
 *
 * Whether a charge is held follows from the records: no group of that number is in the books any more. Fixed capacity; no
 * allocation after registered_open(). The tenant's calls are held for all that changes it. */
#ifndef MGPU_REGISTERED_H
#define MGPU_REGISTERED_H
#include "initialize.h"
#include "mediate.h"

enum {
    REGISTERED_MAX = 2048,
    REGISTERING_MAX = 16,   /* threads that may be registering a channel */
    REGISTERED_FILES = 128, /* of nvidia-uvm, of a tenant: NVIDIA_TENANT_LOOSE_MAX */
};

struct retained {
    uint32_t check;           /* of all up to `owner`, stored last; 0: a free slot */
    uint32_t client, channel; /* channel 0: one that has no name here */
    uint32_t card;
    uint64_t group, bytes; /* number of the group (objects.h), and its charge on `card` */
    uint64_t
        newest; /* channel 0: of the files of nvidia-uvm that may have it, the one that was opened last */
    struct process_id owner; /* of the client */
    /* What changes: each a word. */
    uint64_t
        file; /* channel 0: the client's, on which calls are in doubt; 0: it is closed, and nothing tells any more */
    uint32_t waits; /* bits of `registering`: what they register may be this channel */

    /* What follows from the above. */
    uint32_t next_free;
    bool asked;          /* the files that are known have let it go */
    uint64_t held_bytes; /* charged for the group, which has ended: by one of its records */
};

/* Where the journal has it. */
struct registered_page {
    bool begun;                         /* a call has been let through, or may be */
    pid_t registering[REGISTERING_MAX]; /* 0: free */
    struct initialize_calls initialize; /* an unknown file may retain anything */
    _Alignas(64) struct retained slot[REGISTERED_MAX];
};

struct registered {
    struct registered_page *page; /* to be touched when `begun` */
    struct store store;
    bool begun;
    atomic_bool due; /* a thread registers, or a record may have become untrue */
    uint32_t high, live,
        free_head;         /* slots that were ever used, and that are; a slot's number is its index plus 1 */
    struct ledger *ledger; /* the tenant's */
};

/* In the journal's folder, or in memory that ends with us (-1). earlier: the tenant is an earlier worker's. */
int registered_open(struct tenant *t, int folder, bool earlier);
void registered_close(struct registered *r);
/* ... and nobody is to take it over. */
void registered_remove(struct registered *r);
/* What the journal calls it. */
void registered_name(uint64_t tenant, char name[STORE_NAME_MAX]);
/* After the objects of an earlier worker have been put right: what has no group any more is charged here. */
void registered_recover(const struct mediator *m, struct tenant *t);

/* Channels may be registered on the file. */
bool registered_may_hold(const struct registered *r, const struct open_file *file);
/* Such a one is not known any more, and may be open. */
void registered_lost(struct registered *r);
/* From here on its page is there. -ENOSPC. */
int registered_begin(struct registered *r);

/* REGISTER_CHANNEL, on its way into the kernel. As mediate(). */
int register_channel(struct call *c);

/* Before a call of the tenant is served: what its thread did before has ended. */
void registered_settle(struct call *c);
static inline bool registered_settled(const struct tenant *t)
{
    return !t->registered || !atomic_load_explicit(&t->registered->due, memory_order_acquire);
}

/* The driver has ended the object and all below it, and the books are about to. The tenant is held. */
void registered_note(const struct mediator *m, struct tenant *t, uint32_t slot);
/* The same for a channel that is in no books; its parent is. */
void registered_note_channel(struct tenant *t, uint32_t client, uint32_t parent, uint32_t channel);
/* The books have: what is retained no more ends. ask: nvidia-uvm is told to let go, else only what is known is looked at. */
void registered_look(const struct mediator *m, struct tenant *t, bool ask);
/* A file is gone, and what hung from it has been noted. The tenant is held. */
void registered_file_gone(struct tenant *t, const struct open_file *file);

/* There is no room for what could become of one more channel or group. The tenant is held. */
bool registered_full(const struct tenant *t);
/* The group's last object ends: true when its charge is held from now on. The tenant is held. */
bool registered_holds(struct registered *r, const struct rm_object *obj);
#endif
