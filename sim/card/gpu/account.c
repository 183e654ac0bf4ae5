#include "state.h"
#include <stdlib.h>

const char *const gpu_engine_names[GPU_ENGINES] = {"graphics", "copy", "video"};

/* Copied under the lock, printed without it. */
struct snapshot {
    uint64_t now_ns, slipped_ns;
    uint64_t run_ns[GPU_ENGINES], switch_ns[GPU_ENGINES];
    uint32_t ended_count, group_count;
    struct gpu_totals ended[ENDED_GROUPS], groups[GPU_MAX_GROUPS];
};

static bool pending(const struct gpu_group *group)
{
    for (const struct gpu_channel *channel = group->channels; channel; channel = channel->next)
        if (!channel->failed && (channel->fetched_count || channel->get != channel->put))
            return true;
    return false;
}

static void take_snapshot(struct gpu *gpu, struct snapshot *snapshot)
{
    uint64_t first;

    gpu_lock(gpu);
    snapshot->now_ns = gpu_catch_up(gpu);
    snapshot->slipped_ns = gpu->slipped_ns;
    for (int i = 0; i < GPU_ENGINES; i++) {
        engine_progress(&gpu->engines[i]);
        snapshot->run_ns[i] = gpu->engines[i].run_ns;
        snapshot->switch_ns[i] = gpu->engines[i].switch_ns;
    }
    for (const struct gpu_group *group = gpu->groups; group; group = group->next) {
        struct gpu_totals *totals = &snapshot->groups[snapshot->group_count++];

        *totals = group->totals;
        totals->pending = pending(group);
        totals->open = group_open(group);
    }
    first = gpu->ended_count > ENDED_GROUPS ? gpu->ended_count - ENDED_GROUPS : 0;
    for (uint64_t i = first; i < gpu->ended_count; i++)
        snapshot->ended[snapshot->ended_count++] = gpu->ended[i % ENDED_GROUPS];
    gpu_settle_unlock(gpu);
}

static void print_group(const struct gpu_totals *totals, FILE *out)
{
    fprintf(out,
            "{\"engine\":\"%s\",\"client\":%u,\"group\":%u,\"tsg\":%u,\"file\":%llu,\"tgid\":%d,"
            "\"enabled\":%s,\"open\":%s,\"timeslice_us\":%u,\"run_ns\":%llu,\"switch_ns\":%llu,"
            "\"kernels\":%llu,\"kernel_ns\":%llu,\"errors\":%llu,\"pending\":%s}",
            gpu_engine_names[totals->engine], totals->owner.client, totals->owner.handle, totals->tsg,
            (unsigned long long)totals->owner.file, totals->owner.tgid, totals->enabled ? "true" : "false",
            totals->open ? "true" : "false", totals->timeslice_us, (unsigned long long)totals->run_ns,
            (unsigned long long)totals->switch_ns, (unsigned long long)totals->kernels,
            (unsigned long long)totals->kernel_ns, (unsigned long long)totals->errors,
            totals->pending ? "true" : "false");
}

static void print_engine(const struct snapshot *snapshot, enum sim_engine_index engine, FILE *out)
{
    const char *comma = "";

    fprintf(out, "{\"engine\":\"%s\",\"busy_ns\":%llu,\"switch_ns\":%llu,\"groups\":[",
            gpu_engine_names[engine], (unsigned long long)snapshot->run_ns[engine],
            (unsigned long long)snapshot->switch_ns[engine]);
    for (uint32_t i = 0; i < snapshot->group_count; i++) {
        if (snapshot->groups[i].engine != engine)
            continue;
        fputs(comma, out);
        print_group(&snapshot->groups[i], out);
        comma = ",";
    }
    fputs("]}", out);
}

void gpu_print_account(struct gpu *gpu, FILE *out)
{
    struct snapshot *snapshot = calloc(1, sizeof *snapshot);

    if (!snapshot) {
        fputs("\"engines\":null", out);
        return;
    }
    take_snapshot(gpu, snapshot);
    fprintf(out, "\"now_ns\":%llu,\"slipped_ns\":%llu,\"engines\":[", (unsigned long long)snapshot->now_ns,
            (unsigned long long)snapshot->slipped_ns);
    for (uint32_t i = 0; i < GPU_ENGINES; i++) {
        fputs(i ? "," : "", out);
        print_engine(snapshot, i, out);
    }
    fputs("],\"ended\":[", out);
    for (uint32_t i = 0; i < snapshot->ended_count; i++) {
        fputs(i ? "," : "", out);
        print_group(&snapshot->ended[i], out);
    }
    fputc(']', out);
    free(snapshot);
}
