/* Parameters of a channel as a driver's version lays them out. From 610.43 on a handle comes before USERD's,
 * so that what follows lies further back. */
#ifndef MGPU_RM_CHANNEL_H
#define MGPU_RM_CHANNEL_H
#include "rm_abi.h"
#include "table.h"

enum {
    RM_CHANNEL_HANDLE_AT = offsetof(struct rm_channel, userd_memory),
    RM_CHANNEL_HANDLE_BYTES = sizeof(uint32_t),
    RM_CHANNEL_OFFSETS_AT = offsetof(struct rm_channel, userd_offset),
    RM_CHANNEL_FURTHER = 2 * RM_CHANNEL_HANDLE_BYTES, /* the offsets are aligned to 8 */
    RM_CHANNEL_MAX = sizeof(struct rm_channel) + RM_CHANNEL_FURTHER,
};

/* Decoders, encoders, JPEG and optical flow: a bit for each, by its number. */
#define RM_VIDEO_ENGINES                                                                    \
    (0xffull << RM_ENGINE_NVDEC0 | 7ull << RM_ENGINE_NVENC0 | 0xffull << RM_ENGINE_NVJPG0 | \
     1ull << RM_ENGINE_OFA0 | 1ull << RM_ENGINE_OFA1 | 1ull << RM_ENGINE_NVENC3)

static inline bool rm_is_video_engine(uint32_t engine)
{
    return engine < 64 && RM_VIDEO_ENGINES >> engine & 1;
}

/* A group's parameters, as the newest driver takes them: from 615.71 on two words follow, which RM clears
 * (kchangrpapiConstruct(), kernel_channel_group_api.c). */
union rm_channel_group_params {
    struct rm_channel_group group;
    uint8_t bytes[sizeof(struct rm_channel_group) + 2 * sizeof(uint32_t)];
};

static inline bool rm_channel_has_handle(const struct rm_table *t)
{
    return t->version >= RM_VERSION(610, 43);
}

/* params: as many bytes as the driver's version takes. */
static inline void rm_channel_read(const struct rm_table *t, const void *params, struct rm_channel *out)
{
    const uint8_t *from = params;
    uint8_t *to = (uint8_t *)out;
    uint32_t bytes = rm_bytes(t, RM_BYTES_NV_CHANNEL_ALLOC_PARAMS);
    bool handle = rm_channel_has_handle(t);
    uint32_t memory = RM_CHANNEL_HANDLE_AT + (handle ? RM_CHANNEL_HANDLE_BYTES : 0);
    uint32_t offsets = RM_CHANNEL_OFFSETS_AT + (handle ? RM_CHANNEL_FURTHER : 0);

    memset(out, 0, sizeof(*out));
    memcpy(to, from, RM_CHANNEL_HANDLE_AT);
    memcpy(to + RM_CHANNEL_HANDLE_AT, from + memory, sizeof(out->userd_memory));
    memcpy(to + RM_CHANNEL_OFFSETS_AT, from + offsets, bytes - offsets);
}

/* Into params, of RM_CHANNEL_MAX bytes; returns how many the driver's version takes. */
static inline uint32_t rm_channel_write(const struct rm_table *t, const struct rm_channel *channel,
                                        void *params)
{
    const uint8_t *from = (const uint8_t *)channel;
    uint8_t *to = params;
    uint32_t bytes = rm_bytes(t, RM_BYTES_NV_CHANNEL_ALLOC_PARAMS);
    bool handle = rm_channel_has_handle(t);
    uint32_t memory = RM_CHANNEL_HANDLE_AT + (handle ? RM_CHANNEL_HANDLE_BYTES : 0);
    uint32_t offsets = RM_CHANNEL_OFFSETS_AT + (handle ? RM_CHANNEL_FURTHER : 0);

    memset(to, 0, RM_CHANNEL_MAX);
    memcpy(to, from, RM_CHANNEL_HANDLE_AT);
    memcpy(to + memory, from + RM_CHANNEL_HANDLE_AT, sizeof(channel->userd_memory));
    memcpy(to + offsets, from + RM_CHANNEL_OFFSETS_AT, bytes - offsets);
    return bytes;
}
#endif
