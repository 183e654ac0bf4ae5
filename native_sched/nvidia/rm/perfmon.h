/* NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2: a head and a ring of samples, each of a time and
 * what each engine did (ctrl2080perf.h). Later drivers have more engines, and a pointer for each (550.54,
 * 570.86): the two that are spoken of here are the first in all of them. */
#ifndef MGPU_RM_PERFMON_H
#define MGPU_RM_PERFMON_H
#include "rm_abi.h"
#include "table.h"

enum rm_perfmon_engine_index {
    RM_PERFMON_FB,
    RM_PERFMON_GR,
    RM_PERFMON_NVENC,
    RM_PERFMON_NVDEC,
    RM_PERFMON_KNOWN
};

struct rm_perfmon_layout {
    uint32_t sample_bytes, engine_bytes, engines;
};

struct rm_perfmon_use {
    uint32_t hundredths; /* of a percent */
    uint32_t pid;        /* RM_PERFMON_NO_PID: no process's */
};

static inline struct rm_perfmon_layout rm_perfmon_layout(const struct rm_table *t)
{
    struct rm_perfmon_layout l = {
        .sample_bytes = rm_bytes(t, RM_BYTES_NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE),
        .engine_bytes = rm_bytes(t, RM_BYTES_NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE),
    };

    l.engines = (l.sample_bytes - RM_PERFMON_ENGINES_AT) / l.engine_bytes;
    return l;
}

/* at: sample_bytes, all of them written. */
static inline void rm_perfmon_write(const struct rm_perfmon_layout *l, uint8_t *at, uint64_t timestamp_ns,
                                    const struct rm_perfmon_use *use)
{
    memset(at, 0, l->sample_bytes);
    memcpy(at, &timestamp_ns, sizeof(timestamp_ns));
    for (uint32_t i = 0; i < l->engines; i++) {
        struct rm_perfmon_engine engine = {.pid = RM_PERFMON_NO_PID, .vgpu_pid = RM_PERFMON_NO_PID};

        if (i < RM_PERFMON_KNOWN) {
            engine.util = use[i].hundredths;
            engine.pid = use[i].pid;
        }
        memcpy(at + RM_PERFMON_ENGINES_AT + (size_t)i * l->engine_bytes, &engine, sizeof(engine));
    }
}

/* Whether any engine did something. */
static inline bool rm_perfmon_used(const struct rm_perfmon_layout *l, const uint8_t *at)
{
    struct rm_perfmon_engine engine;
    uint32_t used = 0;

    for (uint32_t i = 0; i < l->engines; i++) {
        memcpy(&engine, at + RM_PERFMON_ENGINES_AT + (size_t)i * l->engine_bytes, sizeof(engine));
        used |= engine.util;
    }
    return used;
}

static inline uint64_t rm_perfmon_read(const struct rm_perfmon_layout *l, const uint8_t *at,
                                       struct rm_perfmon_use *use)
{
    uint64_t timestamp_ns;

    memcpy(&timestamp_ns, at, sizeof(timestamp_ns));
    for (uint32_t i = 0; i < RM_PERFMON_KNOWN; i++) {
        struct rm_perfmon_engine engine;

        memcpy(&engine, at + RM_PERFMON_ENGINES_AT + (size_t)i * l->engine_bytes, sizeof(engine));
        use[i] = (struct rm_perfmon_use){engine.util, engine.pid};
    }
    return timestamp_ns;
}
#endif
