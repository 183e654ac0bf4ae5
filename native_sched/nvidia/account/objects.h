/* The RM objects a tenant has made, as the mediator saw them made: which is whose parent, on which card, and
 * what each costs. Freeing an object in RM frees everything below it, so the tree is what tells which charges
 * end. Objects that stand for the same memory form a ring; one of them carries the charge, and hands it on
 * when it ends. Fixed capacity, no allocation after objects_init; the owner serialises.
 *
 * Client 0 belongs to no program: its names hang from open files (exported.h).
 *
 * The slots may lie in a journal (journal/store.h): the next mgpud reads there what each object is, and
 * finds out anew what follows from that. An object counts from objects_commit() on. */
#ifndef MGPU_OBJECTS_H
#define MGPU_OBJECTS_H
#include "native_sched/core/engine_types.h"
#include "native_sched/journal/slab.h"
#include "native_sched/process/process_id.h"
#include <stdint.h>

enum { OBJECTS_MAX = 65536, OBJECTS_BUCKETS = 131072, OBJECT_NO_CARD = 0xffffffffu };

struct rm_object {
    uint32_t check; /* of all up to `memory`, stored last; 0: no object that counts */
    uint32_t client, handle, class_id;
    uint32_t card;         /* card index, OBJECT_NO_CARD above a device */
    uint32_t parent;       /* slot, 0 = none */
    uint64_t memory_bytes; /* the charge, on `card`, for the memory it stands for */
    uint64_t file;         /* root clients: the open file they live and die with */
    union {
        struct process_id owner;  /* root clients: the process that made them */
        struct {                  /* channel groups */
            uint32_t engine_type; /* as their maker said */
            uint32_t wraps;       /* 1: made for one channel that a device was named for */
        };
        struct {                             /* a mapping of map_dma.c's */
            uint32_t virtual_memory, device; /* in which and by which, handles */
            uint64_t mapped;                 /* bytes */
        };
        uint32_t peer;                 /* peers: a subdevice, the other one being its parent here */
        uint32_t places;               /* files that memory is exported through: how much they take */
        uint32_t channel_client;       /* retained.h: of the channel that is registered */
        struct {                       /* memory */
            uint32_t page_shift, none; /* of its pages; 0: not known */
            uint64_t length;           /* as the driver has it, and counts it to a process */
        };
        struct { /* channels: where USERD is; memory 0: there is none */
            uint32_t memory, pad;
            uint64_t offset;
        } userd;
    };
    /* What changes while the object lives: each a word. */
    uint64_t memory; /* its number, once it has a second name, a mapping or a registration; 0: none */
    union {
        uint64_t timeslice_us; /* channel groups: what the tenant set; 0: nothing */
        uint64_t base;         /* a mapping of map_dma.c's: where it is; UINT64_MAX: a part is unmapped */
    };
    uint32_t wanted;  /* channel groups: 1: by its tenant */
    uint32_t stopped; /* channels: 1: by its tenant */
    uint32_t shared;  /* shared.h: with whom, as its tenant said; 0: it has said nothing */

    /* What follows from the above. */
    uint32_t first_child, next_sibling, prev_sibling; /* slots, 0 = none */
    uint32_t hash_next;
    uint32_t alias_next, alias_prev; /* the same memory by another name; 0 = none */
    uint64_t bytes;                  /* charged on `card`: by one of those that stand for the memory */
};

struct objects {
    struct rm_object *slot; /* [0] is the root of all clients */
    uint32_t *bucket;
    uint32_t live;
    uint64_t hash_factor; /* random: handles are the tenant's to choose, and chains of them must not be */
    uint64_t last_memory;
    /* Bytes that the driver attributes to processes, per card: each memory object once per name, without what
     * the driver takes by itself (_gpuCollectMemInfo() of NVIDIA's gpu_rmapi.c). */
    uint64_t named_bytes[MGPU_CARDS_MAX];
    uint32_t anonymous; /* objects of client 0 */
    struct slab slab;
};

enum { OBJECTS_BYTES = (OBJECTS_MAX + 1) * sizeof(struct rm_object) };

/* The slots lie `at` bytes into the store, which is the owner's. */
int objects_init(struct objects *o, struct store *store, size_t at);
void objects_destroy(struct objects *o);

/* What the previous mgpud left in the store. Objects that it had not committed are none. */
int objects_recover(struct objects *o);

/* 0 when there is none. */
uint32_t objects_find(const struct objects *o, uint32_t client, uint32_t handle);
/* The next of that name after `after` (0: the first); client 0 can have several. */
uint32_t objects_next_named(const struct objects *o, uint32_t after, uint32_t client, uint32_t handle);

/* The new slot, or -ENOSPC. parent 0 makes a root client. An object of the same name is an error of the
 * caller: RM has refused it before. */
int64_t objects_add(struct objects *o, uint32_t parent, uint32_t client, uint32_t handle, uint32_t class_id);
/* It is complete: from here on it is an object to the next mgpud too. */
void objects_commit(struct objects *o, uint32_t slot);

/* The object after i in a walk over the subtree of top; 0 at its end. */
uint32_t objects_next(const struct objects *o, uint32_t top, uint32_t i);
/* The same, without what is below i: for a walk that drops i. */
uint32_t objects_after(const struct objects *o, uint32_t top, uint32_t i);

/* The number of the object's memory, which is never another's. */
uint64_t objects_memory(struct objects *o, uint32_t slot);

/* Says that `alias`, which has none yet, is charged nothing and is not committed, stands for the same memory
 * as `slot`. */
void objects_alias(struct objects *o, uint32_t slot, uint32_t alias);

/* Calls `ended`, unless NULL, for every object of a subtree, children first, and forgets them. */
typedef void (*objects_ended_fn)(void *context, const struct rm_object *obj);
void objects_drop(struct objects *o, uint32_t slot, objects_ended_fn ended, void *context);

/* The root client an object hangs from; of a root client itself. */
uint32_t objects_root(const struct objects *o, uint32_t slot);

/* Drops every root client of an open file and all below them. */
void objects_drop_file(struct objects *o, uint64_t file, objects_ended_fn ended, void *context);
#endif
