/* What the engines share among their files. Everything is under gpu->lock unless it says otherwise.
 *   lock.c     the lock, and catching up with time
 *   thread.c   the thread and its sleep
 *   status.c   registers
 *   engine.c   what an engine does next, and when
 *   progress.c what it has executed until now
 *   runqueue.c which groups have work, and wait for an engine
 *   group.c    channel groups, from RM's side
 *   channel.c  channels, from RM's side; USERD
 *   work.c     a channel's kernel, what it waits for, and its failure
 *   fetch.c    ring entries and commands, read from memory that is not trusted
 *   push.h     rings as NVIDIA's hardware takes them
 *   polled.c   doorbells that are pages
 *   others.c   all cards of the process
 *   utilization.c what it did in the last ten seconds, as its driver tells
 *   timeline.c, record.c, excerpt.c, account.c what tests are told */
#ifndef MGPU_SIM_GPU_STATE_H
#define MGPU_SIM_GPU_STATE_H
#include "../../../native_sched/nvidia/rm/rm_abi.h"
#include "gpu.h"
#include "registers.h"
#include "timeline.h"
#include <pthread.h>
#include <stdatomic.h>

#define NEVER_NS UINT64_MAX
#define US_NS    1000u

enum {
    FETCH_AHEAD = 2, /* ring entries that the front end reads before they execute */
    ENDED_GROUPS = 256,
    TSG_WORDS = (GPU_MAX_GROUPS + 1) / 64,
};

/* What a command, a ring entry, or a semaphore's way to host memory takes of the front end: free in a burst,
 * so that short kernels start back to back, and a flood of empty commands costs its sender time on the engine
 * instead of the host's. */
enum { FETCH_NS = 500, SEMAPHORE_NS = 2000, FETCH_BURST_NS = 1024 * FETCH_NS };

/* Above any kernel's length, and far from where adding to an instant overflows. */
#define KERNEL_MAX_NS (UINT64_C(1) << 60)

/* Of a ring: where it goes on, and how many commands or words there are yet. */
struct ring_entry {
    uint64_t at;
    uint32_t count;
};

/* What an acquire waits for, in the memory that is beside it: operations as SEM_EXECUTE has them. */
enum gpu_wait_how { WAIT_EQUAL = 0, WAIT_GEQ = 2, WAIT_CIRCULAR_GEQ = 3, WAIT_AND = 4, WAIT_NOR = 5 };
struct gpu_wait {
    uint64_t at, value;
    enum gpu_wait_how how;
    bool wide; /* 64 bits */
};

struct push;

struct gpu_channel {
    struct gpu_channel *next; /* in the group */
    struct gpu_channel *next_blocked, *prev_blocked;
    struct gpu_group *group;
    struct sysmem *memory; /* USERD's */
    struct gpu_channel_layout layout;
    struct push *push; /* NULL: a ring of commands (channel_abi.h) in the same memory */
    uint32_t get;      /* the next entry to fetch; USERD shows it */
    uint32_t put;      /* known to the engine */
    uint32_t found;    /* read from USERD, becomes known at the instant the card has advanced to */
    uint32_t fetched_count;
    struct ring_entry fetched[FETCH_AHEAD + 1]; /* the first one executes once it is begun */
    bool begun;
    bool off, failed, faulted; /* faulted: it waits for a replay */
    struct sysmem *waits_for;  /* an acquire's semaphore; NULL: not blocked */
    struct gpu_wait wait;
    bool executing;                   /* a kernel, wherever its group is */
    uint64_t kernel_ns, remaining_ns; /* of it */
};

struct gpu_totals {
    struct gpu_owner owner;
    enum sim_engine_index engine;
    uint32_t tsg, timeslice_us;
    bool enabled, pending; /* enabled: on its runlist */
    bool open;             /* and a channel of it is not off */
    uint64_t run_ns, switch_ns, kernels, kernel_ns, errors;
};

struct gpu_group {
    struct gpu *gpu;
    struct gpu_engine *engine;
    struct gpu_group *next, *prev;               /* of the card */
    struct gpu_group *next_queued, *prev_queued; /* of the engine's run queue */
    bool queued;
    bool disabled_by_save;        /* to be told on the timeline when the save is over */
    struct gpu_channel *channels; /* in order of creation */
    struct gpu_channel *turn;     /* whose entry executes, or is looked at first */
    uint32_t channel_count;
    uint64_t front_ns;  /* when the front end is done with what it has read for this group */
    uint32_t status_at; /* its engine's, as a place in the registers */
    struct gpu_totals totals;
};

enum engine_state { ENGINE_IDLE, ENGINE_SAVING, ENGINE_LOADING, ENGINE_RUNNING };

struct gpu_slot {
    uint64_t number; /* of the slot of time, since the clock's start */
    uint64_t run_ns;
    int32_t tgid; /* whose kernel was the last in it */
};

struct gpu_engine {
    struct gpu *gpu;
    enum sim_engine_index index;
    enum engine_state state;
    uint64_t at_ns;             /* computed up to here; SAVING, LOADING: since when */
    struct gpu_group *resident; /* whose context is on the engine, if it executes or not */
    uint32_t shown_at;          /* its status, as a place in the registers; 0: nothing has been on it */
    struct gpu_group *moving;   /* SAVING, LOADING: which */
    uint64_t switch_end_ns;
    struct gpu_group *running;  /* RUNNING */
    struct gpu_channel *kernel; /* RUNNING: whose kernel is on the engine, or NULL */
    uint64_t slice_end_ns, run_start_ns;
    struct gpu_group *queue_first, *queue_last;
    uint64_t run_ns, switch_ns;
    struct gpu_slot slots[GPU_UTILIZATION_RING]; /* one is being filled */
};

struct gpu {
    /* Inherits priority and is handed over in order: the thread cannot starve callers. */
    pthread_mutex_t lock;
    struct gpu_engine engines[GPU_ENGINES];
    uint64_t at_ns; /* every event before is done */
    uint64_t half_switch_ns, copy_bytes_per_ms, launch_ns;
    struct gpu_doorbell *polled; /* that are pages */
    uint64_t rung_ns;            /* when one of them was found rung */
    struct gpu_group *groups;
    struct gpu_channel *blocked;
    atomic_uint blocked_count; /* read by other cards without the lock */
    uint64_t tsg_used[TSG_WORDS];
    uint32_t last_tsg;
    struct gpu_totals ended[ENDED_GROUPS]; /* a ring */
    uint64_t ended_count;
    uint64_t slipped_ns;
    struct timeline timeline;
    const struct registers *registers; /* where they are */
    struct gpu_faults faults;
    uint8_t *bar0;
    int status_fd, epoll_fd, timer_fd, kick_fd;
    uint64_t armed_ns, timer_pass_ns;
    struct gpu *next; /* of all cards of the process */
};

/* others.c */
void gpu_add(struct gpu *gpu);
/* A RELEASE on one card may be waited for on another. Another card's lock is not to be had under
 * this one's: its thread is woken to look. */
void gpu_kick_others(const struct gpu *gpu);

/* group.c */
/* Whether any channel of it could run; the timeline records when that changes. */
bool group_open(const struct gpu_group *group);
void group_opens(struct gpu_group *group, bool was_open);
void group_closes(struct gpu_group *group, bool was_open, uint64_t off_ns);
void gpu_each_channel_of(struct gpu *gpu, uint32_t client, void (*act)(struct gpu_channel *channel));

/* record.c: an entry of the timeline about that group. */
void group_record(const struct gpu_group *group, enum timeline_kind kind, uint64_t start_ns, uint64_t end_ns);
/* For the control that reads utilisation: its running group executed meanwhile. */
void utilization_ran(struct gpu_engine *engine, uint64_t from_ns, uint64_t to_ns);

/* account.c */
extern const char *const gpu_engine_names[GPU_ENGINES];

/* lock.c */
static inline void gpu_lock(struct gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
}
/* Every event up to now is done: returns that now. The lock is given up for a moment when there are many. */
uint64_t gpu_catch_up(struct gpu *gpu);
/* Carries out what changed, shows it, sets the timer, and gives up the lock. */
void gpu_settle_unlock(struct gpu *gpu);

/* polled.c. Those of its pages that were rung since the last look are known; how long may pass until the next
 * look. */
void polled_look(struct gpu *gpu);
void polled_accept(struct gpu *gpu);
int polled_wait_ms(const struct gpu *gpu);

/* progress.c */
/* Accounts what runs up to the card's instant. */
void engine_progress(struct gpu_engine *engine);
/* What ran so far is told as an entry of the timeline; what follows will be another. */
void engine_cut_run(struct gpu_engine *engine);
/* Takes the channel's kernel off the engine; its group goes on with others. */
void engine_drop_kernel(struct gpu_channel *channel);
/* The host could not keep up: time that is passed over instead of being caught up with. */
void engine_slip(struct gpu_engine *engine, uint64_t slip_ns);

/* engine.c */
/* False when there is more to do than one lock hold should take. */
bool gpu_advance(struct gpu *gpu, uint64_t now_ns);
uint64_t gpu_next_event_ns(const struct gpu *gpu);
/* Takes the group off the engine and its queue, with its state or without; returns when it is off. */
uint64_t engine_evict(struct gpu_group *group, bool save);
/* To the end of the queue, if another group waits; returns when it is off. */
uint64_t engine_preempt(struct gpu_group *group);

/* status.c */
int status_start(struct gpu *gpu);
void status_show(struct gpu *gpu);

/* runqueue.c */
bool group_has_work(const struct gpu_group *group);
/* The channel whose command is next, which becomes the group's turn; NULL: no work. */
struct gpu_channel *group_pick(struct gpu_group *group);
void runqueue_remove(struct gpu_group *group);
/* Puts the group where its enabled flag and its channels' work say. */
void runqueue_update(struct gpu_group *group);

/* work.c */
void channel_fail(struct gpu_channel *channel);
/* What it does now is to be done again; or it fails. */
void channel_fault(struct gpu_channel *channel, uint64_t address);
/* What faulted is tried again, or has failed. */
void gpu_replay(struct gpu *gpu, bool cancelled);
void channel_unblock(struct gpu_channel *channel);
void charge_front_end(struct gpu_channel *channel, uint32_t cost_ns);
void begin_kernel(struct gpu_channel *channel, uint64_t kernel_ns);
/* What a copy of so many bytes over the bus takes. */
uint64_t copy_ns(const struct gpu *gpu, uint64_t bytes);
/* Goes on when channel->wait is so in the memory, whose reference it takes over. */
void channel_wait(struct gpu_channel *channel, struct sysmem *memory);
/* A semaphore in that memory was written to: groups that wait for it look, on other cards too. */
void semaphore_released(struct gpu *gpu, const struct sysmem *memory);
/* Looks again at what blocked channels wait for: of that memory, or NULL: of that client, or 0: all. */
void gpu_recheck(struct gpu *gpu, const struct sysmem *memory, uint32_t client);

/* fetch.c */
/* Reads ring entries ahead, as far as a group on the engine does. */
void channel_prefetch(struct gpu_channel *channel);
/* Executes one command, or begins a kernel. */
void channel_step(struct gpu_channel *channel);
/* Looks at GP_PUT and makes it known, in two steps: reading comes before the instant at which it counts. */
void channel_look(struct gpu_channel *channel);
void channel_accept(struct gpu_channel *channel);
#endif
