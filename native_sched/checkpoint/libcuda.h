/* The part of a libcuda that moves a process's GPU memory to the host and back, from outside of the process.
 * Declared from the public reference of CUDA's driver API ("CUDA Checkpointing", 12.8; GPU pairs 13.0). */
#ifndef MGPU_CHECKPOINT_LIBCUDA_H
#define MGPU_CHECKPOINT_LIBCUDA_H
#include <stdint.h>

typedef struct {
    uint8_t bytes[16];
} CUuuid;

typedef struct {
    unsigned int timeoutMs, reserved0; /* timeoutMs 0: waits for ever */
    uint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct {
    CUuuid oldUuid, newUuid;
} CUcheckpointGpuPair;

typedef struct {
    CUcheckpointGpuPair *gpuPairs;
    unsigned int gpuPairsCount;
    char reserved[52 - sizeof(CUcheckpointGpuPair *)];
    uint64_t reserved1;
} CUcheckpointRestoreArgs;
_Static_assert(sizeof(CUcheckpointLockArgs) == 64 && sizeof(CUcheckpointRestoreArgs) == 64,
               "as cuda.h of 13.0 has them");

/* Results are CUresult numbers, 0 is success. */
struct libcuda {
    int (*lock)(int pid, CUcheckpointLockArgs *args);
    int (*checkpoint)(int pid, void *args);
    int (*restore)(int pid, CUcheckpointRestoreArgs *args);
    int (*unlock)(int pid, void *args);
    int (*state)(int pid, int *state);
    int (*error_name)(int result, const char **name);
    int (*error_text)(int result, const char **text);
};

/* NULL, or why the library cannot be used: one line, good until the next call. */
const char *libcuda_open(const char *path, struct libcuda *libcuda);
#endif
