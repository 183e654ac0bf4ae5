#include "state.h"
#include <stdlib.h>

static const char *const kinds[] = {"run", "switch", "enable", "disable"};

struct excerpt {
    uint64_t now_ns, first, count, next;
    struct timeline_entry entries[TIMELINE_ANSWER_ENTRIES];
};

static void take_excerpt(struct gpu *gpu, uint64_t since, struct excerpt *excerpt)
{
    const struct timeline *timeline = &gpu->timeline;

    gpu_lock(gpu);
    excerpt->now_ns = gpu_catch_up(gpu);
    for (int i = 0; i < GPU_ENGINES; i++)
        engine_cut_run(&gpu->engines[i]);
    excerpt->next = timeline->next;
    excerpt->first = since < timeline->next ? since : timeline->next;
    if (timeline->next - excerpt->first > TIMELINE_ENTRIES)
        excerpt->first = timeline->next - TIMELINE_ENTRIES;
    excerpt->count = timeline->next - excerpt->first;
    if (excerpt->count > TIMELINE_ANSWER_ENTRIES)
        excerpt->count = TIMELINE_ANSWER_ENTRIES;
    for (uint64_t i = 0; i < excerpt->count; i++)
        excerpt->entries[i] = timeline->ring[(excerpt->first + i) % TIMELINE_ENTRIES];
    gpu_settle_unlock(gpu);
}

void gpu_print_timeline(struct gpu *gpu, uint64_t since, FILE *out)
{
    struct excerpt *excerpt = malloc(sizeof *excerpt);
    uint64_t next;

    if (!excerpt)
        return;
    take_excerpt(gpu, since, excerpt);
    next = excerpt->first + excerpt->count;
    fprintf(out, "{\"next\":%llu,\"lost\":%s,\"more\":%s,\"now_ns\":%llu,\"entries\":[",
            (unsigned long long)next, excerpt->first > since ? "true" : "false",
            next < excerpt->next ? "true" : "false", (unsigned long long)excerpt->now_ns);
    for (uint64_t i = 0; i < excerpt->count; i++) {
        const struct timeline_entry *entry = &excerpt->entries[i];

        fprintf(out, "%s[\"%s\",\"%s\",%u,%d,%llu,%llu]", i ? "," : "", kinds[entry->kind],
                gpu_engine_names[entry->engine], entry->tsg, entry->tgid, (unsigned long long)entry->start_ns,
                (unsigned long long)entry->end_ns);
    }
    fputs("]}", out);
    free(excerpt);
}
