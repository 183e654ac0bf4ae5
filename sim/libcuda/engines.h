/* A context's share of the card's engines: a channel group on each, made at first need, channels in the
 * groups, and what waiting for their work takes. engines.c  groups, the doorbell, which channel a stream gets
 * channel.c  one channel's ring wait.c     waiting for semaphores, noticing a lost card           slots.c
 * semaphores that events use A stream has a lane: the channel of that number on each engine. There are as
 * many lanes as a context may have channels in a group; further streams share them. */
#ifndef MGPU_SIM_CUDA_ENGINES_H
#define MGPU_SIM_CUDA_ENGINES_H
#include "../abi/channel_abi.h"
#include "cuda.h"
#include <pthread.h>

enum { LANES = 8, LEGACY_LANE = 0, CHANNELS = LANES * SIM_ENGINES };

/* "The channel of index i has come so far": (i + 1) << 32 | sequence number; one word, so that it is read and
 * set without a lock. */
typedef uint64_t mark_t;
enum { NO_MARK = 0 };

struct engines;

struct channel {
    struct engines *engines;
    uint32_t index, handle, memory;
    uint8_t *map;
    mark_t blocking;      /* atomic: the last entry of a stream that the legacy stream waits for */
    pthread_mutex_t lock; /* of what follows; held while a full ring is waited for */
    uint32_t put;         /* atomic to read without the lock: entries submitted */
    uint32_t base;        /* of them, when the ring was begun */
    uint32_t freed;       /* entries whose room has been taken back */
    uint64_t head, tail;  /* commands written and freed, ever */
    uint64_t *ends;       /* `head` after an entry, by entry */
};

struct slab;

struct engines {
    const struct rmc *rm;
    const struct rmc_card *card;
    pthread_mutex_t lock; /* of making and ending what lies below */
    uint32_t vaspace, group[SIM_ENGINES], usermode;
    int doorbell_fd;
    struct channel *channels[CHANNELS]; /* atomic: [engine * LANES + lane] */
    struct slab *slabs;
    struct slot *slots_free, **slots_free_end;
    unsigned int next_lane;
    mark_t legacy;  /* atomic: the legacy stream's last entry */
    CUresult error; /* atomic: set once and for all, by a lost card or the context's end */
};

/* The graphics group comes at once: it is what a context costs. NULL with *error set. */
struct engines *engines_make(const struct rmc *rm, const struct rmc_card *card, CUresult *error);
/* Gives everything back to the driver; threads that wait get CUDA_ERROR_CONTEXT_IS_DESTROYED. */
void engines_end(struct engines *engines);
/* Drops our own memory and mappings, once no thread can be waiting. */
void engines_free(struct engines *engines);
struct channel *engines_channel(struct engines *engines, enum sim_engine_index engine, unsigned int lane,
                                CUresult *error);
unsigned int engines_lane(struct engines *engines);
/* NULL: not made yet. */
static inline struct channel *engines_channel_at(struct engines *engines, uint32_t index)
{
    return __atomic_load_n(&engines->channels[index], __ATOMIC_ACQUIRE);
}
static inline CUresult engines_error(const struct engines *engines)
{
    return __atomic_load_n(&engines->error, __ATOMIC_ACQUIRE);
}
/* For a checkpoint, once all work is done. The session that the objects were of has ended: what reaches the
 * driver goes, and mappings stay, with what threads may look at. */
void engines_leave(struct engines *engines);
/* RM status. After a failure engines_leave(). */
uint32_t engines_return(struct engines *engines);
/* Whether all that was submitted is done, or will never be. */
bool engines_drained(struct engines *engines);

/* channel.c */
enum { CHANNEL_COMMANDS_MAX = 8192 }; /* of one entry, its progress release included */
struct commands {
    const struct sim_command *first;
    uint32_t count;
};
struct channel *channel_make(struct engines *engines, uint32_t index, uint32_t *status);
/* Of one that the driver has no more: it has nothing to do. RM status. */
uint32_t channel_return(struct channel *channel);
/* Gives back what the driver holds for it; memory and mapping stay for threads that wait. */
void channel_end(const struct channel *channel);
void channel_free(struct channel *channel);
/* One ring entry of both runs of commands; waits for room in the ring. Longer than CHANNEL_COMMANDS_MAX it
 * becomes several. */
CUresult channel_submit(struct channel *channel, struct commands before, struct commands work, bool blocking,
                        mark_t *mark);
/* Of all that has been submitted. */
mark_t channel_mark(const struct channel *channel);
/* The command that makes a channel wait for another's mark; false when it has been reached. */
bool mark_acquire(struct engines *engines, mark_t mark, struct sim_command *command);
bool mark_reached(struct engines *engines, mark_t mark);
CUresult mark_wait(struct engines *engines, mark_t mark);

/* mapped.c */
/* A mapped object of class 0x3e. RM status. */
uint32_t engines_memory(const struct engines *engines, uint64_t bytes, uint32_t *handle, uint8_t **map);
/* The same, in the place of a mapping of that size, of which `kept` bytes at `from` stay as they are. */
uint32_t engines_memory_at(const struct engines *engines, uint64_t bytes, uint64_t from, uint64_t kept,
                           uint32_t *handle, uint8_t *map);

/* wait.c */
/* The card looks at its rings, and at the semaphores that channels wait for. */
void engines_ring(const struct engines *engines);
bool semaphore_reached(const struct sim_semaphore *semaphore, uint32_t value);
/* In the place of a release that the card will not do. */
void semaphore_set(struct sim_semaphore *semaphore, uint32_t value);
CUresult semaphore_wait(struct engines *engines, const struct sim_semaphore *semaphore, uint32_t value);

/* slots.c: one semaphore each; its values only ever grow, over all events that use it, so that a thread that
 * waits for a value of an event that is gone still sees it. */
struct slot {
    struct slot *next; /* in the free list */
    uint32_t memory, offset;
    struct sim_semaphore *semaphore;
    uint32_t issued; /* the last value that it was released to, or is about to be */
};
/* A slot that is not about to be released, and the value to release it to. NULL with *error set. */
struct slot *slot_take(struct engines *engines, CUresult *error);
void slot_give(struct engines *engines, struct slot *slot);
/* Of a context that ends: what is not released yet will not be, and others may wait for it. */
void slabs_end(struct engines *engines);
void slabs_to_pool(struct engines *engines);
/* As engines_return(). */
uint32_t slabs_return(struct engines *engines);
/* Slabs of contexts that are gone: in a forked child, or when no channel has anything to do. */
void slabs_forget(void);
#endif
