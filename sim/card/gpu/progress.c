#include "state.h"

static void run_told(struct gpu_engine *engine)
{
    if (engine->at_ns > engine->run_start_ns)
        group_record(engine->running, TIMELINE_RUN, engine->run_start_ns, engine->at_ns);
    engine->run_start_ns = engine->at_ns;
}

void engine_progress(struct gpu_engine *engine)
{
    uint64_t passed_ns = engine->gpu->at_ns - engine->at_ns;

    if (engine->state != ENGINE_RUNNING)
        return;
    if (engine->kernel)
        engine->kernel->remaining_ns -= passed_ns;
    engine->running->totals.run_ns += passed_ns;
    engine->run_ns += passed_ns;
    utilization_ran(engine, engine->at_ns, engine->gpu->at_ns);
    engine->at_ns = engine->gpu->at_ns;
}

void engine_cut_run(struct gpu_engine *engine)
{
    engine_progress(engine);
    if (engine->state == ENGINE_RUNNING)
        run_told(engine);
}

void engine_drop_kernel(struct gpu_channel *channel)
{
    struct gpu_engine *engine = channel->group->engine;

    if (engine->kernel == channel) {
        engine_progress(engine);
        engine->kernel = NULL;
    }
    channel->executing = false;
}

void engine_slip(struct gpu_engine *engine, uint64_t slip_ns)
{
    if (engine->state == ENGINE_RUNNING)
        run_told(engine);
    engine->at_ns += slip_ns;
    engine->run_start_ns += slip_ns;
    engine->slice_end_ns += slip_ns;
    engine->switch_end_ns += slip_ns;
}
