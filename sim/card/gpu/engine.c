#include "state.h"

enum { STEPS_PER_BATCH = 1024 };

/* A kernel that has not run yet has no state worth saving. */
static bool unfinished(const struct gpu_channel *channel)
{
    return channel && channel->executing && channel->remaining_ns < channel->kernel_ns;
}

static void idle(struct gpu_engine *engine, struct gpu_group *resident)
{
    engine->state = ENGINE_IDLE;
    engine->at_ns = engine->gpu->at_ns;
    engine->running = engine->moving = NULL;
    engine->kernel = NULL;
    engine->resident = resident;
}

static void leave(struct gpu_engine *engine, struct gpu_group *resident)
{
    engine_cut_run(engine);
    idle(engine, resident);
}

static void move(struct gpu_engine *engine, enum engine_state state, struct gpu_group *group)
{
    idle(engine, NULL);
    engine->state = state;
    engine->moving = group;
    engine->switch_end_ns = engine->at_ns + engine->gpu->half_switch_ns;
}

/* A load or a save is over, or given up. */
static struct gpu_group *moved(struct gpu_engine *engine)
{
    struct gpu_group *group = engine->moving;
    uint64_t passed_ns = engine->gpu->at_ns - engine->at_ns;

    group->totals.switch_ns += passed_ns;
    engine->switch_ns += passed_ns;
    if (passed_ns)
        group_record(group, TIMELINE_SWITCH, engine->at_ns, engine->gpu->at_ns);
    idle(engine, NULL);
    return group;
}

static void saved(struct gpu_engine *engine)
{
    struct gpu_group *group = moved(engine);

    if (group->disabled_by_save)
        group_record(group, TIMELINE_DISABLE, engine->at_ns, engine->at_ns);
    group->disabled_by_save = false;
}

static void run(struct gpu_engine *engine, struct gpu_group *group)
{
    engine->state = ENGINE_RUNNING;
    engine->running = engine->resident = group;
    engine->run_start_ns = engine->at_ns;
    engine->slice_end_ns = engine->at_ns + (uint64_t)group->totals.timeslice_us * US_NS;
    for (struct gpu_channel *channel = group->channels; channel; channel = channel->next)
        channel_prefetch(channel);
}

/* Takes the running group off; it comes back in its turn. */
static uint64_t take_off(struct gpu_engine *engine, bool save)
{
    struct gpu_group *group = engine->running;
    bool costs = save && unfinished(engine->kernel);

    leave(engine, save ? group : NULL);
    if (!costs)
        return engine->at_ns;
    move(engine, ENGINE_SAVING, group);
    return engine->switch_end_ns;
}

static void preempt(struct gpu_engine *engine)
{
    struct gpu_group *group = engine->running;

    take_off(engine, true);
    runqueue_update(group);
}

uint64_t engine_preempt(struct gpu_group *group)
{
    struct gpu_engine *engine = group->engine;

    if (engine->moving == group && engine->state == ENGINE_SAVING)
        return engine->switch_end_ns;
    if (engine->running != group || !engine->queue_first)
        return engine->gpu->at_ns;
    engine_progress(engine);
    preempt(engine);
    return engine->state == ENGINE_SAVING ? engine->switch_end_ns : engine->at_ns;
}

uint64_t engine_evict(struct gpu_group *group, bool save)
{
    struct gpu_engine *engine = group->engine;

    runqueue_remove(group);
    if (engine->running == group) {
        engine_progress(engine);
        return take_off(engine, save);
    }
    if (engine->moving == group) {
        if (engine->state == ENGINE_SAVING && save)
            return engine->switch_end_ns;
        moved(engine);
    }
    if (engine->resident == group && !save)
        engine->resident = NULL;
    return engine->gpu->at_ns;
}

static uint64_t work_ns(const struct gpu_engine *engine)
{
    const struct gpu_group *group = engine->running;

    if (engine->kernel)
        return engine->at_ns + engine->kernel->remaining_ns;
    if (group->front_ns > engine->at_ns && group_has_work(group))
        return group->front_ns;
    return engine->at_ns;
}

static uint64_t event_ns(const struct gpu_engine *engine)
{
    uint64_t at_ns;

    switch (engine->state) {
    case ENGINE_IDLE:
        return engine->queue_first ? engine->at_ns : NEVER_NS;
    case ENGINE_RUNNING:
        at_ns = work_ns(engine);
        return engine->queue_first && engine->slice_end_ns < at_ns
                   ? (engine->slice_end_ns < engine->at_ns ? engine->at_ns : engine->slice_end_ns)
                   : at_ns;
    default:
        return engine->switch_end_ns;
    }
}

static void finish_kernel(struct gpu_engine *engine)
{
    struct gpu_totals *totals = &engine->running->totals;

    engine->kernel->executing = false;
    totals->kernels++;
    totals->kernel_ns += engine->kernel->kernel_ns;
    engine->kernel = NULL;
}

static void step_running(struct gpu_engine *engine)
{
    struct gpu_group *group = engine->running;
    struct gpu_channel *channel;

    engine_progress(engine);
    if (engine->kernel && !engine->kernel->remaining_ns) {
        finish_kernel(engine);
        return;
    }
    if (!engine->kernel) {
        channel = group_pick(group);
        if (!channel) {
            leave(engine, group);
            return;
        }
        if (channel->executing) {
            engine->kernel = channel;
            return;
        }
        if (group->front_ns <= engine->at_ns) {
            channel_step(channel);
            return;
        }
    }
    preempt(engine);
}

static void step_idle(struct gpu_engine *engine)
{
    struct gpu_group *group = engine->queue_first, *resident = engine->resident;

    runqueue_remove(group);
    if (group == resident)
        run(engine, group);
    else
        move(engine, ENGINE_LOADING, group);
}

static void step(struct gpu_engine *engine)
{
    switch (engine->state) {
    case ENGINE_IDLE:
        step_idle(engine);
        break;
    case ENGINE_SAVING:
        saved(engine);
        break;
    case ENGINE_LOADING:
        run(engine, moved(engine));
        break;
    case ENGINE_RUNNING:
        step_running(engine);
        break;
    }
}

static struct gpu_engine *first_engine(struct gpu *gpu, uint64_t *at_ns)
{
    struct gpu_engine *first = NULL;

    *at_ns = NEVER_NS;
    for (int i = 0; i < GPU_ENGINES; i++) {
        uint64_t engine_ns = event_ns(&gpu->engines[i]);

        if (engine_ns < *at_ns) {
            *at_ns = engine_ns;
            first = &gpu->engines[i];
        }
    }
    return first;
}

uint64_t gpu_next_event_ns(const struct gpu *gpu)
{
    uint64_t next_ns = NEVER_NS;

    for (int i = 0; i < GPU_ENGINES; i++) {
        uint64_t engine_ns = event_ns(&gpu->engines[i]);

        next_ns = engine_ns < next_ns ? engine_ns : next_ns;
    }
    return next_ns;
}

bool gpu_advance(struct gpu *gpu, uint64_t now_ns)
{
    for (int steps = 0; steps < STEPS_PER_BATCH; steps++) {
        uint64_t at_ns;
        struct gpu_engine *engine = first_engine(gpu, &at_ns);

        if (at_ns > now_ns) {
            if (now_ns > gpu->at_ns)
                gpu->at_ns = now_ns;
            for (int i = 0; i < GPU_ENGINES; i++)
                if (gpu->engines[i].state == ENGINE_IDLE)
                    gpu->engines[i].at_ns = gpu->at_ns;
            return true;
        }
        if (at_ns > gpu->at_ns)
            gpu->at_ns = at_ns;
        step(engine);
    }
    return false;
}
