/* The gate that a checkpoint closes: see checkpoint.h. */
#ifndef MGPU_SIM_CUDA_GATE_H
#define MGPU_SIM_CUDA_GATE_H
#include <stdbool.h>

/* Waits while the gate is closed, but within a passage of the same thread. */
void gate_pass(void);
void gate_leave(void);

static inline bool passage_begin(void)
{
    gate_pass();
    return true;
}

static inline void passage_end(const bool *passage)
{
    if (*passage)
        gate_leave();
}
/* From here to the end of the block. */
#define PASSAGE __attribute__((cleanup(passage_end), unused)) bool

/* The calling thread is the library's: it passes always and is not waited for. */
void gate_exempt(void);
void gate_close(void);
void gate_open(void);
bool gate_empty(void);
#endif
