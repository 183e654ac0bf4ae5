#include "cuda.h"

enum { DEPTH_MAX = 64 };

static __thread CUcontext stack[DEPTH_MAX];
static __thread unsigned int depth;

CUcontext stack_top(void)
{
    return depth ? stack[depth - 1] : NULL;
}

bool stack_push(CUcontext context)
{
    if (depth == DEPTH_MAX)
        return false;
    stack[depth++] = context;
    return true;
}

CUcontext stack_pop(void)
{
    return depth ? stack[--depth] : NULL;
}

void stack_forget(void)
{
    depth = 0;
}
