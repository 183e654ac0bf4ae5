/* The CUDA driver API, found with dlopen as an application finds it, so that the same program runs on
 * simulated and on real cards. Declared here from its public reference; every call answers a CUresult, 0 for
 * success. */
#ifndef MGPU_LOAD_CUDA_H
#define MGPU_LOAD_CUDA_H
#include <stddef.h>
#include <stdint.h>

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_READY = 600, CU_STREAM_NON_BLOCKING = 1 };

typedef void *cuda_handle;

struct cuda_api {
    int (*init)(unsigned int flags);
    int (*error_name)(int error, const char **name);
    int (*error_string)(int error, const char **text);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*context_create)(cuda_handle *context, unsigned int flags, int device);
    int (*context_destroy)(cuda_handle context);
    int (*context_set_current)(cuda_handle context);
    int (*module_load)(cuda_handle *module, const void *image);
    int (*module_function)(cuda_handle *function, cuda_handle module, const char *name);
    int (*launch)(cuda_handle function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                  unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                  cuda_handle stream, void **params, void **extra);
    int (*stream_create)(cuda_handle *stream, unsigned int flags);
    int (*event_create)(cuda_handle *event, unsigned int flags);
    int (*event_record)(cuda_handle event, cuda_handle stream);
    int (*event_query)(cuda_handle event);
    int (*event_synchronize)(cuda_handle event);
    int (*event_elapsed)(float *milliseconds, cuda_handle start, cuda_handle end);
    int (*memory_alloc)(uint64_t *pointer, size_t bytes);
    int (*memory_free)(uint64_t pointer);
};
extern struct cuda_api cuda;

enum { STATUS_FAILED = 1, STATUS_REFUSED = 2, STATUS_USAGE = 64 };

/* Loads the driver and initialises it; ends the program with one line when that cannot be done. */
void cuda_load(void);
/* The error's name, such as CUDA_ERROR_OUT_OF_MEMORY, and the driver's words for it. */
const char *cuda_name(int error);
const char *cuda_text(int error);
/* Ends the program with one line that names the call, when it failed. */
void cuda_must(int error, const char *call);
/* A context on the card, current to the calling thread. */
cuda_handle cuda_context(int device);

/* spin.c. The kernel mgpu_spin, which runs for as many ns as it is told, in the current context. */
cuda_handle spin_load(void);
/* Not waited for. A CUresult. */
int spin_launch(cuda_handle function, uint64_t ns, cuda_handle stream);
#endif
