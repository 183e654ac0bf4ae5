/* Shared by the sources of the engine library. */
#ifndef MGPU_ENGINE_PRIVATE_H
#define MGPU_ENGINE_PRIVATE_H
#include "native_sched/loop/loop.h"
#include "native_sched/nvidia/boundary/restart/recover.h"
#include <unistd.h>

/* Closed files whose charges are still to be ended. */
struct closed_file {
    uint64_t id, since_ns; /* since when its last close is known to have begun */
};

struct file_reaper {
    pthread_t watch, late; /* the file watch, and the file reaper */
    pthread_mutex_t lock;  /* guards what follows */
    pthread_cond_t more;
    struct closed_file *file; /* the deferred ones, in the order in which they were closed */
    uint32_t n, room;
    bool over, busy[MAX_TENANTS]; /* busy: its tenant was at a call when its turn came */
};

struct mgpu_engine {
    struct files files;
    struct mediator mediator;
    pthread_t reaper;
    uint64_t managed_gap_ns; /* the shortest time between two polls of a tenant's managed memory */
    int events;              /* eventfd for mgpud */
    int wake;                /* eventfd for the reaper */
    atomic_bool driver_lost, stopping;
    pthread_mutex_t lock; /* guards tenant[].id and the list of listeners */
    struct tenant tenant[MAX_TENANTS];
    struct card_memory memory[MAX_CARDS];
    struct listener *listeners;
    int journal;              /* a folder, or -1 */
    struct orphan_page *left; /* guarded by `lock` */
    struct refusals refusals;
    struct ids ids;
    struct loop loop;
    struct file_reaper file_reaper;
    struct {
        pthread_t thread;
        pthread_cond_t due;
        const struct tenant *at; /* polled without `lock`: it is not removed meanwhile */
        bool awaited;            /* its removal waits: mgpud is notified */
        bool over;
    } managed_poller; /* of what tenants have; guarded by `lock` */
    struct {
        pthread_t thread;
        pthread_cond_t end;
        bool over;
        uint64_t looks;
    } strangers;    /* guarded by `lock` */
    bool all_there; /* every tenant of the previous mgpud has been added; guarded by `lock` */
    int guarded;    /* as driver_ops.guard() said first */
    /* Of listeners and tenants that are gone; guarded by `lock`. */
    struct mgpu_stats ended;
    atomic_uint_least64_t serving_since_ns; /* of the call that has been served for longest; 0: none */
};

/* The reaper sees listeners hang up, ends and joins their threads. */
int reaper_start(struct mgpu_engine *e);
void reaper_stop(struct mgpu_engine *e);
void reaper_wake(struct mgpu_engine *e); /* a listener has been added */

/* Watches for closed files and ends their charges. */
int file_reaper_start(struct mgpu_engine *e);
void file_reaper_stop(struct mgpu_engine *e);

/* Polls managed memory, in a thread of its own. */
int managed_poller_start(struct mgpu_engine *e);
void managed_poller_stop(struct mgpu_engine *e);
/* A poll may be due. */
void managed_poller_wake(struct mgpu_engine *e);
/* Looks at all processes each second, in a thread of its own, and ends tenants whose files are in those
 * without a filter. */
int strangers_start(struct mgpu_engine *e);
void strangers_stop(struct mgpu_engine *e);
/* Whether the tenant is being polled. mgpud is notified when that is over. */
bool managed_poller_at(struct mgpu_engine *e, const struct tenant *t);

/* Holds mgpu_engine.lock until the end of the scope. */
#define WITH_ENGINE(e) LOCKED_(engine_held, &(e)->lock)

/* Frees what a tenant holds, once nothing uses it. Its journal stays. */
void tenant_destroy(struct tenant *t);

/* NULL when there is none, or only what could not be taken over of one. */
struct tenant *tenant_by_id(struct mgpu_engine *e, uint64_t id);

/* Adds the counters of a tenant or listener that is about to be removed. */
void stats_keep_tenant(struct mgpu_engine *e, const struct tenant *t);
void stats_keep_listener(struct mgpu_engine *e, const struct listener *l);
/* The reaper's: sees how long the mediator's threads have been at their calls. */
void stats_watch_listeners(struct mgpu_engine *e);
#endif
