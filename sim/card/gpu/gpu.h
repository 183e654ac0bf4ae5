/* A card's engines and their time, as the resource manager drives them.
 *
 * Each card has one lock of its own, taken after the RM lock and never before it, and one thread that sleeps
 * until the next event: a kernel's or a timeslice's end, a doorbell. Any thread that holds the lock may
 * advance the card to now, so a call never waits for the thread. Instants are CLOCK_MONOTONIC nanoseconds and
 * computed: a thread that wakes late makes nothing longer. */
#ifndef MGPU_SIM_GPU_H
#define MGPU_SIM_GPU_H
#include "../../abi/channel_abi.h"
#include "../memory/sysmem.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Behind those that programs of mgpu's name: one for all that video is. */
enum { GPU_ENGINE_VIDEO = SIM_ENGINES, GPU_ENGINES };

struct gpu;
struct gpu_group;
struct gpu_channel;
struct gpu_doorbell;
struct registers;
struct vaspace;

enum {
    GPU_DEFAULT_TIMESLICE_US = 2048,
    GPU_MAX_TIMESLICE_US = 8500000, /* what the hardware's timeslice register holds */
    GPU_MAX_GROUPS = 4095,
    GPU_MAX_GROUP_CHANNELS = 128,
};

/* Ten seconds, in as many samples as NVIDIA's driver keeps. */
enum { GPU_UTILIZATION_SLOTS = 72, GPU_UTILIZATION_RING = GPU_UTILIZATION_SLOTS + 1 };
#define GPU_UTILIZATION_SLOT_NS (UINT64_C(10000000000) / GPU_UTILIZATION_SLOTS)

/* Whom a channel tells that an engine of graphics has nothing mapped where it writes. True: it tries again
 * once a replay is asked for. instance: as the channel's layout has it. */
struct gpu_faults {
    bool (*tell)(void *of, uint64_t instance, uint64_t address);
    void *of;
};

struct gpu_costs {
    uint32_t switch_us;       /* half to save a group with an unfinished kernel, half to load another */
    uint32_t copy_mib_per_ms; /* > 0 */
    uint32_t launch_us;       /* a kernel of no stated length */
    const struct registers *registers; /* NULL: none show what it does */
    struct gpu_faults faults;          /* tell NULL: a channel that faults has failed */
};

/* Whose group: names only, for the account. */
struct gpu_owner {
    uint64_t file;
    uint32_t client, handle;
    int32_t tgid;
};

/* thread.c. Negative errno; lives as long as the process. */
int gpu_create(struct gpu **gpu, const struct gpu_costs *costs);
int gpu_start(struct gpu *gpu);
/* Everything until now is done and shown: the thread may be late. */
void gpu_refresh(struct gpu *gpu);
/* A read-only descriptor of the registers, or negative errno. */
int gpu_status_fd(const struct gpu *gpu);

/* group.c: NULL when the card has no id left, or no memory. A new group is not enabled. engine_type: as RM
 * numbers engines; all that copy are one here. */
struct gpu_group *gpu_group_create(struct gpu *gpu, uint32_t engine_type, const struct gpu_owner *owner);
/* At once, its channels before it. */
void gpu_group_free(struct gpu_group *group);
uint32_t gpu_group_tsg(const struct gpu_group *group);
void gpu_group_enable(struct gpu_group *group);
/* These return the instant from which it executes nothing. */
uint64_t gpu_group_disable(struct gpu_group *group);
uint64_t gpu_group_preempt(struct gpu_group *group);
void gpu_group_set_timeslice(struct gpu_group *group, uint32_t timeslice_us);
uint32_t gpu_group_timeslice_us(struct gpu_group *group);

/* channel.c */
struct gpu_channel_layout {     /* bytes from the start of the memory, validated by gpu_layout_fits() */
    uint64_t userd_at, ring_at; /* ring_at: an address, where the channel executes in a space */
    uint64_t instance;          /* whatever faults shall name it by */
    uint32_t entries;
    bool shows_get; /* in USERD */
};
/* in_space: whether it does. */
bool gpu_layout_fits(const struct gpu_channel_layout *layout, uint64_t memory_bytes, bool in_space);
/* Takes references on the memory and on the space, where there is one: then the ring is as NVIDIA's hardware
 * takes it. NULL: the group has GPU_MAX_GROUP_CHANNELS, or no memory. */
/* Its engine has no number left for another channel. */
bool gpu_runlist_is_full(const struct gpu_group *group);
struct gpu_channel *gpu_channel_create(struct gpu_group *group, struct sysmem *memory,
                                       const struct gpu_channel_layout *layout, struct vaspace *vaspace);
void gpu_channel_free(struct gpu_channel *channel);
/* All at one instant; they are the card's. Returns when the last of them executes nothing. */
uint64_t gpu_channels_off(struct gpu *gpu, struct gpu_channel *const *channels, uint32_t count);
void gpu_channels_on(struct gpu *gpu, struct gpu_channel *const *channels, uint32_t count);
/* Nothing that any channel of the card has to do is ever done. */
void gpu_lose(struct gpu *gpu);
/* Read-only descriptor of the memory that USERD lies in, or negative errno. */
int gpu_channel_userd(const struct gpu_channel *channel, uint64_t *offset);

/* doorbell.c: an eventfd per object. NULL when the host does not allow it. */
struct gpu_doorbell *gpu_doorbell_create(struct gpu *gpu, uint32_t client);
void gpu_doorbell_free(struct gpu_doorbell *doorbell);
/* Another descriptor of it, or negative errno. */
int gpu_doorbell_fd(const struct gpu_doorbell *doorbell);
/* The same as a region of registers to map: what is written to the doorbell's rings. Nobody can watch a page,
 * so it is looked at. */
int gpu_doorbell_page(struct gpu_doorbell *doorbell);

/* utilization.c: what each engine did in each of the slots up to the one that now lies in, oldest first.
 * Returns when the last of them ended. */
struct gpu_use {
    uint32_t hundredths; /* of a percent, switches excluded */
    int32_t tgid;        /* 0: no process's */
};
uint64_t gpu_utilization(struct gpu *gpu, struct gpu_use use[GPU_UTILIZATION_SLOTS][GPU_ENGINES]);

/* account.c: "engines":[…],"ended":[…] of one moment. */
void gpu_print_account(struct gpu *gpu, FILE *out);
/* excerpt.c: entries numbered `since` and up. */
void gpu_print_timeline(struct gpu *gpu, uint64_t since, FILE *out);
#endif
