/* Channels whose ring is as NVIDIA's hardware takes it: entries that name segments of methods in the
 * channel's address space. What methods there are and what their fields mean is in the class headers that
 * NVIDIA publishes (clc56f.h of the channels, clc6b5.h of copy engines, clc6c0.h and clcbc0.h of compute).
 *   push.c     segments, methods, the channel's own ones: semaphores
 *   copies.c   a copy engine's, surfaces.c where their bytes lie
 *   launches.c compute's, inline.c those of them that carry what is to be written */
#ifndef MGPU_SIM_GPU_PUSH_H
#define MGPU_SIM_GPU_PUSH_H
#include "../memory/space.h"
#include "state.h"

enum { SUBCHANNELS = 8, METHODS = 4096, RELEASES = 3 };

/* Written when what went before is done. */
struct release {
    uint64_t address, payload;
    bool wide;  /* 64 bits; else 32 */
    bool timed; /* with the time, 8 bytes above */
};

/* One end of a copy. */
struct surface {
    uint64_t base;
    enum vaspace_target target;
    uint32_t pitch; /* from one line to the next; or it is in blocks: */
    bool blocks;
    uint32_t lines_log2, layers_log2; /* how many GOBs a block is high and deep */
    uint32_t width, height, layer;    /* of the whole, in bytes and lines; which of its layers */
    uint32_t x, y;                    /* where the copy begins */
};

/* Elements of `in` components become such of `out`; bytes 0: they stay as they are. */
struct remap {
    uint32_t bytes, in, out;
    uint32_t select; /* four bits for each that is written */
    uint32_t constant[2];
};

/* A copy under way: lines of the same length, in bytes or in elements. */
struct copying {
    struct surface from, to;
    struct remap remap;
    uint32_t line_length, lines; /* lines 0: there is none under way */
    uint32_t line, at;           /* moved up to there */
};

/* Bytes that are to come as methods. */
struct loading {
    uint64_t to;
    uint32_t line_bytes, lines, pitch;
    uint32_t at;
    bool releases, one_word;
};

/* Of the methods to come. */
struct header {
    uint32_t left, method, subchannel;
    bool once, stays; /* it goes on after the first one; it does not go on */
};

struct push {
    struct vaspace *vaspace;
    struct header header;
    uint64_t base;                /* of the ring's entries, above their own 40 bits */
    uint32_t object[SUBCHANNELS]; /* classes; 0: none */
    uint32_t host[64];
    uint32_t copy[METHODS / 4], compute[METHODS / 4];
    uint32_t report[3]; /* of a semaphore of compute's */
    struct copying copying;
    struct loading loading;
    uint64_t qmd; /* of the launch that follows; 0: none */
    struct release release[RELEASES];
    uint32_t releases;
    uint64_t launch_ns;
};

/* Takes a reference. NULL: the host has no room. */
struct push *push_create(struct vaspace *vaspace, uint64_t launch_ns);
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

static inline void push_release_later(struct push *push, const struct release *release)
{
    if (push->releases < RELEASES)
        push->release[push->releases++] = *release;
}
/* Executes a method of the class; true: it caused work that precedes the next one. */
bool copy_method(struct gpu_channel *channel, uint32_t method, uint32_t data);
bool compute_method(struct gpu_channel *channel, uint32_t method, uint32_t data);
/* The same of what methods carry. */
bool inline_method(struct gpu_channel *channel, uint32_t method, uint32_t data);
/* Where that byte of the line is, and how many follow it there. */
uint64_t surface_at(const struct surface *surface, uint32_t line, uint32_t at, uint32_t *run);
/* The next piece of the copy, the next launch. */
void copy_piece(struct gpu_channel *channel);
void compute_launch(struct gpu_channel *channel);
#endif
