/* What becomes of a notified call: docs/errors.md. */
#ifndef MGPU_ANSWER_H
#define MGPU_ANSWER_H
#include "native_sched/nvidia/driver/rm_control.h"

struct answer {
    enum answer_kind { ANSWER, CONTINUE, FAIL, PARK } kind;
    int error;          /* FAIL: a negative errno */
    uint32_t rm_status; /* ANSWER: NV_OK, or what RM or the arbiter answers */
};

static inline struct answer answered(uint32_t rm_status)
{
    return (struct answer){.kind = ANSWER, .rm_status = rm_status};
}

static inline struct answer failed(int error)
{
    return (struct answer){.kind = FAIL, .error = error};
}

/* The kernel makes the call in its caller. */
static inline struct answer continued(void)
{
    return (struct answer){.kind = CONTINUE};
}

/* The call waits for memory that others give way with, and is served anew then (parked.h). */
static inline struct answer parked(void)
{
    return (struct answer){.kind = PARK};
}

/* The driver was asked: what call_driver() returns, and its status where that is 0. */
static inline struct answer driver_answer(int error, uint32_t rm_status)
{
    return error < 0 ? failed(error) : answered(rm_status);
}

/* Turns 0, a negative errno or rm_refusal() into an answer. */
static inline struct answer answer_of(int error)
{
    return rm_refused(error) ? answered(rm_refused(error)) : driver_answer(error, 0);
}
#endif
