/* The engine library's C ABI, which mgpud loads. Every function is thread safe and returns 0 or a positive
 * value, or a negative errno. Calls are served by the library's own threads, without the interpreter. Sizes
 * are in bytes. */
#ifndef MGPU_ENGINE_H
#define MGPU_ENGINE_H
#include "native_sched/core/engine_types.h"

enum { MGPU_ENGINE_ABI = 15 };

struct mgpu_engine;

MGPU_API uint32_t mgpu_engine_abi(void);

/* driver: "nvidia" or "sim". dir: the simulated driver's socket folder. version: of the running driver, or of
 * the one whose interface it has. journal: the folder in which the next mgpud finds what it needs (one mgpud
 * at a time writes there); NULL: no journal. -ENOENT: no such driver or folder; -EPROTONOSUPPORT: no such
 * version; -EPROTO: a journal in an unknown layout. */
MGPU_API int mgpu_engine_open(const char *driver, const char *dir, const char *version, const char *journal,
                              struct mgpu_engine **out);
/* The known driver versions, as text: branches and their first versions. */
MGPU_API const char *mgpu_rm_known(void);
/* mgpu_engine_rm_table() for that version. -EPROTONOSUPPORT: it is unknown. */
MGPU_API int mgpu_rm_row(const char *version);
/* The version at which the newest of the sizes in use appeared: major << 16 | minor. */
MGPU_API uint32_t mgpu_engine_rm_table(const struct mgpu_engine *e);
MGPU_API void mgpu_engine_close(struct mgpu_engine *e);

/* Measures what the driver takes of a card by itself for a channel group of the graphics engine, or with
 * `copies` of a copy engine. To be called while the card is unused. -ENOSYS: this driver reports it
 * otherwise. */
MGPU_API int mgpu_engine_context_bytes(struct mgpu_engine *e, uint32_t minor, uint32_t copies, uint64_t *out);

/* From one thread at a time, also while listeners are served. An index is one card's for good: a released one
 * is taken again by it, once no tenant has it. -EEXIST: it is not released. */
MGPU_API int mgpu_engine_add_card(struct mgpu_engine *e, const struct mgpu_card *card);
/* From the same thread: lets go of the card's files and registers. What tenants have of it they keep, and
 * their work there is over. Twice is as once. */
MGPU_API int mgpu_engine_release_card(struct mgpu_engine *e, uint32_t card);

/* Readable when a listener, an open file, or the poll that kept a tenant from being removed is over. Reading
 * 8 bytes resets it. */
MGPU_API int mgpu_engine_event_fd(const struct mgpu_engine *e);
/* 0 once the driver's event stream is lost. */
MGPU_API int mgpu_engine_driver_alive(const struct mgpu_engine *e);

/* 1: recovered from the journal, with its files, objects and charges. Its grants and nodes, and how it is
 * scheduled, have to be given again; a cap may be below its charges. -ENOSPC: no room, for tenants or in the
 * journal. A tenant that cannot be recovered is unknown to all functions but mgpu_tenant_remove(): its
 * journal stays for the next mgpud, and its files belong to no other tenant. */
MGPU_API int mgpu_tenant_add(struct mgpu_engine *e, uint64_t id);
/* All tenants and listeners that go on have been added: orphans in the journal are dropped. Returns how many.
 */
MGPU_API int mgpu_recovered(struct mgpu_engine *e);
/* After mgpu_recovered(). 1: processes without a grant can receive no file of the driver's; 0: the kernel or
 * the driver table has no way to keep them from it; below: why that failed. */
MGPU_API int mgpu_engine_guarded(const struct mgpu_engine *e);
/* -EEXIST: it was granted another MIG instance of the same card. -EBUSY: another tenant holds the card alone.
 */
MGPU_API int mgpu_tenant_grant(struct mgpu_engine *e, uint64_t id, uint32_t card, uint64_t cap_bytes);
/* After its grants: it holds its cards alone, for good, and gets what interface.def has for whole cards.
 * -EBUSY: another tenant is on one of them; -EINVAL: one is a MIG instance, or it has none. */
MGPU_API int mgpu_tenant_whole(struct mgpu_engine *e, uint64_t id);
/* It gets what interface.def has for these: a set of enum rm_capability. */
MGPU_API int mgpu_tenant_capabilities(struct mgpu_engine *e, uint64_t id, uint32_t capabilities);
/* Its grant of `from` is from now on one of `to`; its nodes of `from` serve no more. -EBUSY: it
 * has something there; -EAGAIN: a call is under way; -EINVAL: it has not that card, or the other already, or
 * it or another tenant holds such a card alone. It is to be given the nodes of `to`, and to be scheduled
 * anew. */
MGPU_API int mgpu_tenant_move(struct mgpu_engine *e, uint64_t id, uint32_t from, uint32_t to);
/* kind: 0 control, 1 card, 2 UVM. (dev, ino): identity of the node inside the container. */
MGPU_API int mgpu_tenant_add_node(struct mgpu_engine *e, uint64_t id, uint64_t dev, uint64_t ino,
                                  uint32_t kind, uint32_t minor);
/* The inode of its container's pid namespace, whose processes have its filter; 0: it is in ours. */
MGPU_API int mgpu_tenant_space(struct mgpu_engine *e, uint64_t id, uint64_t pid_space);
/* Before the first tenant: calls of online tenants that lack memory wait so long for reclaimable ones to give
 * it back. 0, as it is without this: they do not. */
MGPU_API int mgpu_evict_wait(struct mgpu_engine *e, uint32_t wait_ms);
/* kind: enum mgpu_memory, MGPU_MEMORY_UNSHARED until then. After its grants, and live. */
MGPU_API int mgpu_tenant_memory(struct mgpu_engine *e, uint64_t id, uint32_t kind);
/* A tenant gets no memory while it is closed, but for room_bytes[card] (MGPU_CARDS_MAX of them), which no
 * other gets. -ENOSPC: that is not there, and nothing has changed. */
MGPU_API int mgpu_tenant_reclaim(struct mgpu_engine *e, uint64_t id, uint32_t closed,
                                 const uint64_t *room_bytes);
/* It runs beside online work until that instant (CLOCK_MONOTONIC), since it is evicted; 0: no longer. */
MGPU_API int mgpu_tenant_drain(struct mgpu_engine *e, uint64_t id, uint64_t until_ns);
/* The event descriptor is readable when demands begin and end. */
MGPU_API int mgpu_card_memory(struct mgpu_engine *e, uint32_t card, struct mgpu_card_memory *out);
MGPU_API int mgpu_tenant_usage(struct mgpu_engine *e, uint64_t id, uint32_t card, struct mgpu_usage *out);
MGPU_API int mgpu_tenant_processes(struct mgpu_engine *e, uint64_t id, struct mgpu_process *out,
                                   uint32_t max);
MGPU_API int mgpu_tenant_state(struct mgpu_engine *e, uint64_t id, struct mgpu_tenant_state *out);
/* -EBUSY while a listener or an open file remains, or its memory is being polled: to be tried again when the
 * event descriptor is readable. */
MGPU_API int mgpu_tenant_remove(struct mgpu_engine *e, uint64_t id);

/* Before the first tenant, and live. */
MGPU_API int mgpu_sched_configure(struct mgpu_engine *e, const struct mgpu_sched_config *config);
/* policy: its place in core/policies.def. */
MGPU_API int mgpu_card_policy(struct mgpu_engine *e, uint32_t card, uint32_t policy);
/* The tenant's scheduling class and its share of each of its cards, 1 to 100. The first call, after its
 * grants, adds it to the scheduler; its channels do not run before. */
MGPU_API int mgpu_tenant_schedule(struct mgpu_engine *e, uint64_t id, uint32_t class, uint32_t quota_percent);
/* Its container is frozen (1), or is no longer (0): while it is, its work is suspended and keeps no other
 * off. -ENOENT also before the first mgpu_tenant_schedule(). */
MGPU_API int mgpu_tenant_pause(struct mgpu_engine *e, uint64_t id, uint32_t paused);
MGPU_API int mgpu_tenant_sched(struct mgpu_engine *e, uint64_t id, struct mgpu_sched_state *out);
/* Events since number `since`, oldest first: how many are in `out`; *next is the number to go on with, *lost
 * how many were dropped in between. */
MGPU_API int mgpu_sched_events(struct mgpu_engine *e, uint64_t since, struct mgpu_sched_event *out,
                               uint32_t max, uint64_t *next, uint64_t *lost);
/* out: MGPU_WITHOUT_KINDS. 0: nothing was refused; above 0: the status that RM first refused it with; below:
 * an errno. A first refusal makes the event descriptor readable. */
MGPU_API int mgpu_card_without(struct mgpu_engine *e, uint32_t card, int32_t *out);

MGPU_API int mgpu_card_chip(struct mgpu_engine *e, uint32_t card, struct mgpu_chip *out);

/* 1 when the scheduler's thread runs under SCHED_FIFO. */
MGPU_API int mgpu_sched_realtime(const struct mgpu_engine *e);

/* Serves the seccomp listener fd as this tenant; the library owns fd from here on, also on failure.
 * holder_id: the listener's unique number. A call of it that the previous mgpud had received and not answered
 * is answered first (1). */
MGPU_API int mgpu_listener_add(struct mgpu_engine *e, uint64_t id, int fd, uint64_t holder_id);

MGPU_API int mgpu_engine_stats(struct mgpu_engine *e, struct mgpu_stats *out);
/* Wakes the scheduler's thread: if it has not turned by the next pulse it is stuck. Takes no lock. */
MGPU_API int mgpu_engine_pulse(struct mgpu_engine *e, struct mgpu_pulse *out);
/* out: MGPU_REFUSED_KINDS counts. */
MGPU_API int mgpu_tenant_refused(struct mgpu_engine *e, uint64_t id, uint64_t *out);
#endif
