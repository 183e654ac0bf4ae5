/* How the parts of the library work together, from the bottom up:
 *   session.c   the driver, the lock, devices    visible.c   CUDA_VISIBLE_DEVICES
 *   device.c    cuDevice*                        attribute.c cuDeviceGetAttribute
 *   stack.c     the thread's stack of contexts   peer.c      other cards' memory
 *   objects.c   what handles name                engines.h   channels and waiting for them
 *   stream.h    what is submitted to them        ranges.h    memory that has an address
 *   context.c   making and ending contexts       current.c   the calling thread's
 *   primary.c   the context a card's users share limit.c     what a context may be told
 *   init.c      cuInit, forks                    entry.c     cuGetProcAddress
 *   gate.h      calls and checkpoints            checkpoint.h  cuCheckpoint*
 *   error.c     names of errors                  profiler.c  cuProfiler*, cuGetExportTable
 * One lock (rmc_lock) for everything but the stack, which is the thread's own, and the engines, whose locks
 * are taken without it or after it, never before it: a thread that waits for work has left it. */
#ifndef MGPU_SIM_CUDA_H
#define MGPU_SIM_CUDA_H
#include "../rmclient/rmclient.h"
#include "cuda_api.h"
#include "gate.h"
#include <stdbool.h>

struct device {
    const struct rmc_card *card;
    CUcontext primary; /* NULL when inactive */
    unsigned int primary_users, primary_flags;
    CUmemoryPool default_pool, current_pool; /* NULL: not made yet; the default one */
};

enum { CONTEXT_LIMITS = 7 }; /* CU_LIMIT_*: those that every card has */

struct CUctx_st {
    struct CUctx_st *next; /* all live contexts */
    struct device *device;
    struct engines *engines;
    CUstream legacy_stream, thread_streams;
    unsigned int flags;
    unsigned int refs; /* atomic: one of the list of live ones, and one per object */
    bool primary;
    unsigned long long id;
    size_t limit[CONTEXT_LIMITS];
    int cache_config, bank_config;
};

/* Every call on the driver runs inside an entry: the lock is held and cuInit was called in this process. */
struct entry {
    CUresult error;
    struct rmc *rm; /* NULL on error */
    struct device *device;
};
/* Twice is as once. */
void leave(struct entry *entry);
#define ENTRY __attribute__((cleanup(leave))) struct entry
/* Its function returns the error where there is one. */
#define ENTER(entry, how) \
    ENTRY entry = (how);  \
    if ((entry).error)    \
    return (entry).error

struct entry enter(void);
struct entry enter_device(CUdevice device);
/* current.c. CUDA_ERROR_INVALID_CONTEXT when the thread has none; *context is the current one. */
struct entry enter_context(CUcontext *context);
#define ENTER_CONTEXT(entry, context) \
    CUcontext context;                \
    ENTER(entry, enter_context(&(context)))

/* Lock held. Nothing to do where the process has a session. */
CUresult session_open(void);
/* Whether the session is that of a process which this one was forked from. */
bool session_inherited(void);
const struct rmc *session_rm(void);
/* Gives everything back to the driver. What names cards stays. */
void session_leave(void);
/* As it was, but for the handles: every card, or the one that is to stand for it, is in its card's place. */
CUresult session_return(const CUcheckpointGpuPair *pairs, unsigned int count);
/* That return was taken back: it stands for the cards that it stood for before. */
void session_stay(void);

CUresult from_rm(uint32_t status);
CUdevice ordinal_of(const struct device *device);
CUdevice
ordinal_of_card(const struct rmc_card *card); /* -2, which no device has: the process does not see it */
unsigned int device_count(void);
struct device *device_at(CUdevice ordinal);

/* visible.c: indices of cards in the order the process is to see them; the number of them. */
uint32_t visible_cards(const struct rmc *rm, uint32_t order[RM_MAX_CARDS]);

/* context.c, lock held. */
CUresult context_make(struct rmc *rm, struct device *device, unsigned int flags, CUcontext *context);
void context_end(struct rmc *rm, CUcontext context);
/* contexts.c: those that are live. */
void contexts_add(CUcontext context);
void contexts_remove(CUcontext context);
bool context_live(CUcontext context);
/* For a checkpoint: engines_drained(), engines_leave() and engines_return() of all. */
bool contexts_drained(void);
void contexts_leave(void);
CUresult contexts_return(void);
/* One of those on the card; NULL: there is none. */
CUcontext context_on(const struct rmc_card *card);
/* In a forked child: nothing of the parent's exists. */
void contexts_forget(void);
/* Any time: the memory stays while it is held. */
CUcontext context_hold(CUcontext context);
void context_release(CUcontext context);

/* limit.c */
void limits_default(CUcontext context);
/* attribute.c: what a multiprocessor holds. */
uint32_t card_blocks_per_sm(const struct rmc_card *card);
uint32_t card_reserved_shared_bytes(const struct rmc_card *card);

/* stack.c: of the calling thread. */
CUcontext stack_top(void);
bool stack_push(CUcontext context);
CUcontext stack_pop(void);
void stack_forget(void);

#endif
