/* Memory that has an address: one table, however it was made.
 *   ranges.c    which addresses are given out     contents.c  where its bytes are
 *   memory.c    cuMemAlloc, cuMemFree             physical.c  cuMemCreate and descriptors
 *   reserve.c   cuMemAddress*, cuMemMap           ipc.c       cuIpc*
 *   host.c      memory of the host                managed.c   memory of both
 *   uvm.c       nvidia-uvm, for the latter        pointer.c   what is known of an address
 *   pool.c      in the order of streams           peer.c      who may reach another card's
 *   reach.c     what is mapped on it for that     access.h  which contexts do */
#ifndef MGPU_SIM_CUDA_RANGES_H
#define MGPU_SIM_CUDA_RANGES_H
#include "engines.h"

enum range_kind {
    RANGE_DEVICE,
    RANGE_OPENED, /* another process's: cuIpcOpenMemHandle() */
    RANGE_MAPPED, /* cuMemMap() */
    RANGE_MANAGED,
    RANGE_HOST,
    RANGE_REGISTERED, /* the program's own pages: cuMemHostRegister() */
    RANGE_FREEING,    /* cuMemFreeAsync(), until its stream has come there */
    RANGE_CACHED,     /* free, and its pool's */
};

#define RESERVED_FIRST ((CUdeviceptr)0x400000000000)
#define RESERVED_END   ((CUdeviceptr)0x500000000000)

struct range {
    CUdeviceptr base;
    size_t bytes;
    enum range_kind kind;
    CUcontext context;           /* NULL: no context's end ends it */
    const struct rmc_card *card; /* whose object it is; NULL: no card's */
    uint32_t handle;             /* 0: the driver has no object for it */
    unsigned int flags;          /* that it was made with */
    CUmemoryPool pool;
    mark_t freed;              /* RANGE_FREEING: when */
    uint8_t *at;               /* of its first byte here; NULL: nowhere, or not looked for yet */
    bool empty;                /* looked for: it has no contents */
    bool moved;                /* it was away from the card: it may have contents, and `at` is NULL */
    uint64_t from;             /* RANGE_MAPPED: its first byte, in the object */
    uint64_t id;               /* never given again in this process */
    struct physical *physical; /* RANGE_MAPPED: whose bytes */
    bool shared;               /* its name was given away: cuIpcGetMemHandle() */
    struct saved *saved;       /* while it is not on the card: what it held */
    uint32_t reach, reached;   /* bits of cards beside its own: that are to reach it, that do */
    bool external;             /* nvidia-uvm has a range for that */
};

/* All with the library's lock held. Fills in base; false when out of addresses or memory. */
bool range_add(struct range *range);
/* At its base; false when something is there already. */
bool range_add_at(struct range *range);
/* The range that holds the address, NULL when none does. Good until the next change. */
struct range *range_at(CUdeviceptr address);
/* The same, of those that a program may name. */
struct range *range_in_use(CUdeviceptr address);
/* The index-th by address; NULL: there is none. */
struct range *range_number(size_t index);
static inline bool range_is_on_card(const struct range *range)
{
    return range->kind != RANGE_HOST && range->kind != RANGE_REGISTERED;
}
/* Bytes from its base on that lie one behind the other: cuMemMap() may put several objects so. */
uint64_t ranges_run(const struct range *range);
/* Its bytes go from our sight too. Nothing that is to move may be waiting for them: see moves_finish(). */
void range_remove(struct range *range);
void ranges_forget(void);
/* Whether device addresses are of that kind: no other pages lie there. */
bool address_is_ours(CUdeviceptr address);

/* contents.c, lock held: where its bytes can be read and written, NULL when it has none. */
uint8_t *contents_of(const struct rmc *rm, struct range *range);
/* Puts them where their address says; false when they cannot be there. */
bool contents_map_at(const struct rmc *rm, struct range *range, int protection);
/* The same, of the process's file of nvidia-uvm. */
bool contents_map_managed(struct range *range, int uvm);
void contents_unmap(const struct range *range);
/* Its address stays taken, and what it held is gone from here. */
void contents_reserve(const struct range *range);

/* uvm.c, lock held: the process's file of nvidia-uvm, opened at first need. Every card is registered on it,
 * and every card with a context has an address space there. An enum rm_status, as rmc_uvm(). */
uint32_t uvm_join(const struct rmc *rm);
int uvm_file(void);
/* Whether the card's address space was the context's, and is registered no more. */
bool uvm_leave(const struct rmc *rm, CUcontext context);
/* In a forked child, or when what the driver has of the process ends. */
void uvm_forget(void);

/* reach.c, lock held. Maps what is to be reached and is not yet, and ends what is no longer to be. */
CUresult reach(const struct rmc *rm, struct range *range);
/* The same of all ranges, and peers that nothing needs are peers no more. */
CUresult reach_all(const struct rmc *rm);
/* They are peers from now on, until a reach_all() that finds no need. */
CUresult reach_pair(const struct rmc *rm, const struct rmc_card *one, const struct rmc_card *other);
/* No other card reaches it any more. */
void reach_end(const struct rmc *rm, struct range *range);
/* The card's address space is gone, and what was mapped there. */
void reach_leave(const struct rmc *rm, const struct rmc_card *card);
/* nvidia-uvm has nothing of it any more: it is to be made anew. */
void reach_forget(void);

/* peer.c, lock held. */
bool devices_are_peers(const struct rmc *rm, const struct device *one, const struct device *other);

/* memory.c: a context, and nothing that is still to be moved: memory may go. */
struct entry enter_settled(void);
/* Frees what is the context's, in the driver too. */
void memory_end_context(const struct rmc *rm, CUcontext context);
/* Frees a whole range of that kind. */
CUresult memory_free(CUdeviceptr pointer, bool opened);
/* Lock held: memory of the card at an address, or nothing at all. */
CUresult memory_make(const struct rmc *rm, struct range *range);
/* Of a range that was added: the cards reach it that are to, or it is gone. */
CUresult memory_reach(const struct rmc *rm, struct range *range);

/* pool.c, any time: what streams have freed meanwhile goes back. */
void pools_settle(void);
void pools_forget(void);

/* physical.c, lock held: memory without an address of its own. */
struct physical {
    struct physical *next;
    const struct rmc_card *card;
    uint64_t bytes;
    uint32_t handle;
    unsigned int users;  /* its names and its maps */
    bool shared;         /* another process's, or given to one */
    struct saved *saved; /* while it is not on the card */
};
enum { GRANULARITY_BYTES = 2 << 20 };
struct physical *physical_find(CUmemGenericAllocationHandle handle);
/* The one behind that, or the first; NULL: there is none. */
struct physical *physical_next(const struct physical *after);
CUresult physical_put(const struct rmc *rm, struct physical *physical);
void physical_forget(void);
/* reserve.c, in a forked child. */
void reservations_forget(void);
#endif
