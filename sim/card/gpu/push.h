/* Channels whose ring is as NVIDIA's hardware takes it: entries that name segments of methods in the channel's address space. What
 * methods there are and what their fields mean is in the class headers that NVIDIA publishes (clc56f.h of the channels, clc6b5.h
 * of copy engines, clc6c0.h, clc6c0qmd.h and clcec0qmd.h of compute).
 *   push.c     segments, methods, the channel's own ones: semaphores
 *   copies.c   a copy engine's
 *   launches.c compute's */
#ifndef MGPU_SIM_GPU_PUSH_H
#define MGPU_SIM_GPU_PUSH_H
#include "../space.h"
#include "state.h"

enum { SUBCHANNELS = 8, METHODS = 4096, RELEASES = 3 };

/* Written when what went before is done. */
struct release {
    uint64_t address, payload;
    bool wide;  /* 64 bits; else 32 */
    bool timed; /* with the time, 8 bytes above */
};

/* A copy under way: lines of the same length. */
struct copying {
    uint64_t from, to;
    uint32_t line_bytes, lines, pitch_in, pitch_out;
    uint32_t at; /* bytes of the first line that are moved */
};

struct push {
    struct space *space;
    struct { /* of the methods to come */
        uint32_t left, method, subchannel;
        bool once, stays; /* it goes on after the first one; it does not go on */
    } header;
    uint32_t object[SUBCHANNELS]; /* classes; 0: none */
    uint32_t host[64];
    uint32_t copy[METHODS / 4], compute[METHODS / 4];
    struct copying copying;
    uint64_t qmd; /* of the launch that follows; 0: none */
    struct release release[RELEASES];
    uint32_t releases;
    uint64_t launch_ns;
};

/* Takes a reference. NULL: the host has no room. */
struct push *push_create(struct space *space, uint64_t launch_ns);
void push_free(struct push *push);
/* Reads the ring's entry of that number. False: it cannot be read. */
bool push_entry(const struct gpu_channel *channel, uint32_t number, struct ring_entry *entry);
/* A launch or a copy has left something to do. */
static inline bool push_is_due(const struct push *push)
{
    return push->copying.lines || push->releases || push->qmd;
}
/* Does that, or what is next of the entry. */
void push_step(struct gpu_channel *channel, struct ring_entry *entry);

void push_release_later(struct push *push, const struct release *release);
/* One method of the class. True: something came of it, which is to be done before the next one. The channel may fail. */
bool copy_method(struct gpu_channel *channel, uint32_t method, uint32_t data);
bool compute_method(struct gpu_channel *channel, uint32_t method, uint32_t data);
/* The next piece of the copy, the next launch. */
void copy_piece(struct gpu_channel *channel);
void compute_launch(struct gpu_channel *channel);
#endif
