/* What the engine's own files share. */
#ifndef MGPU_ENGINE_PRIVATE_H
#define MGPU_ENGINE_PRIVATE_H
#include "boundary/recover.h"
#include "loop/loop.h"
#include <unistd.h>

/* Files of which the driver has told that they are gone. */
struct file_ends {
    pthread_t watch, late; /* hears of them, ends those whose tenants were at a call */
    pthread_mutex_t lock;  /* guards what follows */
    pthread_cond_t more;
    uint64_t *id; /* of those that are left to do, in the order in which they went */
    uint32_t n, room;
    bool over, busy[MAX_TENANTS]; /* busy: at a call when its turn came */
};

struct mgpu_engine {
    struct files files;
    struct mediator mediator;
    pthread_t reaper;
    uint64_t managed_gap_ns; /* the least from one look at a tenant's managed memory to the next */
    int events;              /* eventfd for the daemon */
    int wake;                /* eventfd for the reaper */
    atomic_bool driver_lost, stopping;
    pthread_mutex_t lock; /* guards tenant[].id and the list of listeners */
    struct tenant tenant[MAX_TENANTS];
    struct listener *listeners;
    int journal;            /* a folder, or -1 */
    struct left_page *left; /* guarded by `lock` */
    struct refusals refusals;
    struct loop loop;
    struct file_ends ends;
    struct {
        pthread_t thread;
        pthread_cond_t due;
        const struct tenant *at; /* looked at without `lock`: it is not removed meanwhile */
        bool awaited;            /* its removal is: the daemon is told */
        bool over;
    } looks; /* at managed memory; guarded by `lock` */
    struct {
        uint64_t calls, refused[MGPU_REFUSED_KINDS], audit_mismatches[MAX_CARDS];
    } ended; /* of listeners and tenants that are gone; guarded by `lock` */
    atomic_uint_least64_t
        serving_since_ns; /* by the mediator's thread that is longest at a call; 0: by none */
};

/* The reaper sees listeners hang up, ends and joins their threads. */
int reaper_start(struct mgpu_engine *e);
void reaper_stop(struct mgpu_engine *e);
void reaper_wake(struct mgpu_engine *e); /* a listener has been added */

/* Hears of files that are gone, and ends their charges. */
int file_ends_start(struct mgpu_engine *e);
void file_ends_stop(struct mgpu_engine *e);

/* Looks at managed memory, in a thread of their own. */
int managed_looks_start(struct mgpu_engine *e);
void managed_looks_stop(struct mgpu_engine *e);
/* One may be due. */
void managed_looks_wake(struct mgpu_engine *e);
/* Whether the tenant is being looked at. The daemon is told when that is over. The engine's lock is held. */
bool managed_looks_at(struct mgpu_engine *e, const struct tenant *t);

/* Holds the engine's lock until the end of the scope. */
#define WITH_ENGINE(e) LOCKED_(engine_held, &(e)->lock)

/* What a tenant holds; nothing of the engine uses it any more. Its journal stays. */
void tenant_destroy(struct tenant *t);

/* NULL when there is none, or only what could not be taken over of one. */
struct tenant *tenant_by_id(struct mgpu_engine *e, uint64_t id);

/* Counts of what is about to go stay; the engine's lock is held. */
void stats_keep_tenant(struct mgpu_engine *e, const struct tenant *t);
void stats_keep_listener(struct mgpu_engine *e, const struct listener *l);
/* The reaper's: sees how long the mediator's threads have been at their calls. */
void stats_watch_listeners(struct mgpu_engine *e);
#endif
