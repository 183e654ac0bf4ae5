/* Memory that nvidia-uvm has mapped. MAP_EXTERNAL_ALLOCATION duplicates an RM object into UVM's own client,
 * and the memory stays until the last such duplicate ends, however early its RM object is freed
 * (uvm_map_external.c of NVIDIA's open-gpu-kernel-modules). So a mapping is in this table before the driver
 * is asked for it, and while one of a memory is, the charge for that memory outlives its last name.
 *
 * A mapping is that of one range on one GPU. One ends when the driver has said so to the arbiter (uvm.c),
 * when the driver has put another one in its place (map_external.c), or with its file.
 *
 * Each takes page tables besides, also one of the host's memory (page_tables.h), which are charged with it:
 * on the card that maps, where the memory can be a peer's.
 *
 * Whether a charge is held follows from the records: no object stands for the memory. So the records
 * are all that the journal has. Fixed capacity, no allocation after external_open(). The owner serialises; x
 * NULL: none. */
#ifndef MGPU_EXTERNAL_H
#define MGPU_EXTERNAL_H
#include "page_tables.h"
#include "tenant.h"

enum { EXTERNAL_MAX = 65536, EXTERNAL_BUCKETS = 65536, UVM_GPU_BYTES = 16 };

struct external_map {
    uint32_t check; /* of what is above `hold_bytes`, stored last; 0: a free slot */
    uint32_t card;
    uint64_t file, base, end; /* addresses in that file's address space, end exclusive */
    /* The number of the memory (objects.h), and its charge on `card`; 0, 0: it is not of a card. */
    uint64_t memory, bytes;
    struct process_id owner; /* of the client whose object was named */
    uint8_t gpu[UVM_GPU_BYTES];
    uint32_t page_shift; /* of the pages that it is mapped by */
    uint32_t mapper;     /* the card that maps it, plus 1; 0: `card` */

    /* What follows from the above. */
    uint64_t hold_bytes; /* charged for the memory, whose objects have ended: by one of its mappings */
    uint32_t memory_next, memory_prev; /* slots in the same bucket; 0 = none */
    uint32_t left, right;              /* slots in order of file, base and slot: a treap */
};

struct external {
    struct store store;
    struct external_map *map; /* [0] unused */
    uint32_t *bucket;         /* by number of the memory */
    struct slab slab;
    uint32_t root, live;
    uint32_t factor;
    bool charges; /* page tables: not before external_recover(), where there are records to recover */
    struct ledger *ledger; /* the tenant's */
};

/* The card that maps it, and has its tables. */
static inline uint32_t external_mapper(const struct external_map *m)
{
    return m->mapper ? m->mapper - 1 : m->card;
}

/* In the journal's folder, or in memory that ends with us (-1). */
int external_open(struct tenant *t, int folder);
void external_close(struct external *x);
/* The same, and no mgpud is to take it over. */
void external_remove(struct external *x);

/* What the journal calls it. */
void external_name(uint64_t tenant, char name[STORE_NAME_MAX]);

/* After the objects of the previous mgpud were recovered: what they no longer hold is held here. Before
 * that the records may be looked up and ended. */
void external_recover(struct tenant *t);

/* The slot of the mapping, which it may have had before (*known); -ENOSPC; -ENOMEM: its page tables are more
 * than is free. */
int64_t external_add(struct external *x, const struct external_map *what, bool *known);
void external_drop(struct external *x, uint32_t slot);

/* The memory's last name ends: true when its charge is held from now on. */
bool external_holds(struct external *x, const struct rm_object *obj);

/* The first mapping of the file at or above that address; 0: none. */
uint32_t external_from(const struct external *x, uint64_t file, uint64_t base);
/* That range of the file is no longer mapped on that GPU. Where there is no room for what is left of a
 * mapping on both sides, it counts as a whole. but: a slot that stays; 0: none. */
void external_unmapped(struct external *x, uint64_t file, uint64_t base, uint64_t end, const uint8_t *gpu,
                       uint32_t but);
void external_drop_file(struct external *x, uint64_t file);
#endif
