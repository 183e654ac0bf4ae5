/* What programs look up as they load and a simulated card does not do: arrays and textures, memory and
 * semaphores of other APIs, the linker, graphics, and the calls of graphs that are not in graph.c. The
 * caller's arguments are looked at by nothing. */
#include "cuda.h"

#define UNSUPPORTED(name)                \
    CUresult name(void);                 \
    CUresult name(void)                  \
    {                                    \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
#include "unsupported.def"
