#include "stream.h"
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16, INSTANTIATE_FLAGS = 0xf };

/* A node can only depend on nodes that are there when it is added: run in the order of adding, all is in
 * order. */
struct CUgraphNode_st {
    uint32_t index;
};

struct CUgraph_st {
    struct object object;
    struct CUgraphNode_st **nodes;
    struct sim_command *commands;
    uint32_t count, room;
};

struct CUgraphExec_st {
    struct object object;
    uint32_t count;
    struct sim_command commands[];
};

static void graph_free(struct object *object)
{
    struct CUgraph_st *graph = (struct CUgraph_st *)object;

    for (uint32_t i = 0; i < graph->count; i++)
        free(graph->nodes[i]);
    free(graph->nodes);
    free(graph->commands);
    free(graph);
}

static void exec_free(struct object *object)
{
    free(object);
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    struct CUgraph_st *graph;
    ENTER(entry, enter());

    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    graph = calloc(1, sizeof *graph);
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object_add(&graph->object, OBJECT_GRAPH, NULL, graph_free);
    *out = graph;
    return CUDA_SUCCESS;
}

static bool graph_grow(struct CUgraph_st *graph)
{
    uint32_t room = graph->room ? graph->room * 2 : FIRST_ROOM;
    void *nodes, *commands;

    if (graph->count < graph->room)
        return true;
    nodes = realloc(graph->nodes, room * sizeof *graph->nodes);
    if (nodes)
        graph->nodes = nodes;
    commands = realloc(graph->commands, room * sizeof *graph->commands);
    if (commands)
        graph->commands = commands;
    if (nodes && commands)
        graph->room = room;
    return nodes && commands;
}

static bool is_node_of(const struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    for (uint32_t i = graph->count; i--;)
        if (graph->nodes[i] == node)
            return true;
    return false;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies,
                              size_t dependency_count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    const struct CUfunc_st *function;
    struct CUgraphNode_st *node;
    struct CUgraph_st *graph;
    struct launch launch;
    CUresult error;
    ENTER(entry, enter());

    graph = (struct CUgraph_st *)object_find(handle, OBJECT_GRAPH);
    if (!out || !graph || !params || (dependency_count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < dependency_count; i++)
        if (!is_node_of(graph, dependencies[i]))
            return CUDA_ERROR_INVALID_VALUE;
    function = function_find(params->func);
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    node = malloc(sizeof *node);
    if (!node || !graph_grow(graph)) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    launch = (struct launch){{params->gridDimX, params->gridDimY, params->gridDimZ},
                             {params->blockDimX, params->blockDimY, params->blockDimZ},
                             params->kernelParams,
                             params->extra};
    error = function_command(function, &launch, &graph->commands[graph->count]);
    if (error) {
        free(node);
        return error;
    }
    node->index = graph->count;
    graph->nodes[graph->count++] = node;
    *out = node;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    return cuGraphAddKernelNode(node, graph, dependencies, count, params ? &params->first : NULL);
}

CUresult cuGraphDestroy(CUgraph handle)
{
    struct object *object;
    ENTER(entry, enter());

    object = object_find(handle, OBJECT_GRAPH);
    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    object_remove(object);
    return CUDA_SUCCESS;
}

/* Takes the commands as they are now: nothing done to the graph later changes what is launched. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    const struct CUgraph_st *graph;
    struct CUgraphExec_st *exec;
    ENTER_CONTEXT(entry, context);

    graph = (const struct CUgraph_st *)object_find(handle, OBJECT_GRAPH);
    if (!out || !graph || flags & ~(unsigned long long)INSTANTIATE_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    exec = malloc(sizeof *exec + graph->count * sizeof *exec->commands);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object_add(&exec->object, OBJECT_EXEC, context, exec_free);
    exec->count = graph->count;
    if (exec->count)
        memcpy(exec->commands, graph->commands, exec->count * sizeof *exec->commands);
    *out = exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes)
{
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

static void exec_release(CUgraphExec *exec)
{
    if (*exec)
        object_release(&(*exec)->object);
}

static CUgraphExec exec_hold(CUgraphExec handle, CUresult *error)
{
    struct object *object;
    ENTRY entry = enter();

    *error = entry.error;
    if (entry.error)
        return NULL;
    object = object_find(handle, OBJECT_EXEC);
    *error = object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return object ? (CUgraphExec)object_hold(object) : NULL;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    CUresult error;
    HELD_STREAM stream = stream_hold(stream_handle, &error);
    __attribute__((cleanup(exec_release))) CUgraphExec exec = error ? NULL : exec_hold(handle, &error);

    if (error)
        return error;
    if (exec->object.context != stream->object.context)
        return CUDA_ERROR_INVALID_HANDLE;
    return stream_submit(stream, SIM_ENGINE_GRAPHICS, (struct commands){exec->commands, exec->count});
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    struct object *object;
    ENTER(entry, enter());

    object = object_find(handle, OBJECT_EXEC);
    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    object_remove(object);
    return CUDA_SUCCESS;
}
