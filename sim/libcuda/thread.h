/* Threads of the library's own. */
#ifndef MGPU_SIM_CUDA_THREAD_H
#define MGPU_SIM_CUDA_THREAD_H
#include <stdbool.h>

/* Detached, and without signals, which are the program's threads'. */
bool thread_start(void *(*work)(void *data), void *data);
#endif
