#include "samples.h"
#include <errno.h>

void samples_ask(struct samples *s, const struct rm_table *rm)
{
    struct rm_perfmon_layout layout = rm_perfmon_layout(rm);
    const struct rm_perfmon_head head = {
        .type = RM_PERFMON_UTIL,
        .buffer_bytes = layout.sample_bytes * RM_PERFMON_SAMPLES,
    };

    s->bytes = rm_bytes(rm, RM_BYTES_NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS);
    memset(s->params, 0, s->bytes);
    memcpy(s->params, &head, sizeof(head));
}

/* Takes the samples with the latest times, wherever `tracker` is: RM's own account goes by the times, too
 * (gpu_acct.c). */
int samples_newest(const struct samples *s, const struct rm_table *rm, struct card_samples *out)
{
    struct rm_perfmon_layout layout = rm_perfmon_layout(rm);
    const uint8_t *at = s->params + sizeof(struct rm_perfmon_head);

    *out = (struct card_samples){.newest_ns = 0};
    for (uint32_t i = 0; i < RM_PERFMON_SAMPLES; i++, at += layout.sample_bytes) {
        struct rm_perfmon_use use[RM_PERFMON_KNOWN];
        uint64_t time_ns = rm_perfmon_read(&layout, at, use);

        if (time_ns > out->newest_ns)
            *out = (struct card_samples){
                .newest_ns = time_ns,
                .before_ns = out->newest_ns,
                .used = rm_perfmon_used(&layout, at),
            };
        else if (time_ns > out->before_ns && time_ns != out->newest_ns)
            out->before_ns = time_ns;
    }
    return out->newest_ns ? 0 : -ENODATA;
}
