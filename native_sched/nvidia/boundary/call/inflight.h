/* The call that a listener's thread serves, where the next mgpud finds it: a notification that was received
 * and not answered is never received again, and its caller would wait for ever.
 *
 * RECV writes the notification into the page. What a call is about to change in the driver is written down
 * before the driver is asked (inflight_intend), the result before the caller is answered (inflight_done). The
 * next mgpud undoes what was intended and makes the call anew from the caller's arguments, or sends the
 * result that is there: nothing is done twice, nothing is lost.
 *
 * mgpud can end between two instructions: `stage` is stored after what it is about. */
#ifndef MGPU_INFLIGHT_H
#define MGPU_INFLIGHT_H
#include "call.h"

enum inflight_stage {
    INFLIGHT_NONE, /* the driver was not asked for anything that lasts */
    INFLIGHT_READ, /* the same, and the caller's arguments are kept: its memory may change until the next time
                    */
    INFLIGHT_INTENDED, /* the driver may have done it, the account is not to be believed */
    INFLIGHT_DONE,     /* the driver and the account have it; the answer is kept */
};

/* Undone by freeing it, or done once more where twice is the same as once. */
enum intent {
    INTENT_MAKE,
    INTENT_FREE,
    INTENT_REGISTER,
    INTENT_UVM,
    INTENT_OS_EVENT, /* handle is the number that the file is known by */
};

struct inflight {
    struct seccomp_notif req; /* id 0: none */
    uint32_t stage, check;    /* check: of `was`, where the stage is INTENDED */
    struct inflight_intent {
        uint32_t what, client, parent, handle;
        uint64_t file; /* the open file that the driver is asked on */
    } was;
    /* READ: the notification under which some of it may have been done and accounted for; made anew it finds
     * that; 0: none */
    uint64_t begun;
    bool written; /* DONE: the caller's memory may hold it already */
    uint32_t params_bytes, params_out_bytes;
    uint32_t params_check, params_check_after; /* DONE: as in struct call */
    uint64_t params_at, file;
    _Alignas(16) uint8_t before[KEPT_OUTER_MAX]; /* READ */
    _Alignas(16) uint8_t params_before[KEPT_PARAMS_MAX];
    _Alignas(16) uint8_t outer[KEPT_OUTER_MAX]; /* DONE */
    _Alignas(16) uint8_t params[KEPT_PARAMS_MAX];
};

/* c->inflight NULL: nothing is kept. inflight_read(): only for a call that changes something. */
void inflight_read(struct call *c, const uint8_t *outer);
/* Fetches `bytes` of parameters at `at` in the caller into c->params, and keeps them where the outer struct
 * was. -EFAULT; -EINVAL when too large. */
int inflight_params(struct call *c, uint64_t at, uint32_t bytes);
/* INTENT_UVM: client is the command; of a mapping, the file is that of the memory's client, and parent and
 * handle are client and memory; of an address space or a channel's group that is registered, the same.
 * INTENT_REGISTER: parent and handle are the two halves of the control file's id. */
void inflight_intend(struct call *c, enum intent what, const struct open_file *file, uint32_t client,
                     uint32_t parent, uint32_t handle);
/* From here on a part of the call may be in the driver and in the account. It is not undone: the call finds
 * it there when it is made anew. */
void inflight_commit(struct call *c);
void inflight_done(struct call *c);

/* Where the next notification is received to. The page no longer speaks of a call, before it can speak of
 * another. */
struct seccomp_notif *inflight_next(struct inflight *k);

/* For undo.h. What comes before inflight_enter() in the program is stored before the stage. */
void inflight_enter(struct inflight *k, enum inflight_stage stage);
uint32_t inflight_check(const struct inflight *k);
/* The caller's arguments, into c: false when they are to be read again. */
bool inflight_restore(const struct inflight *k, struct call *c);
/* The result, into c. */
void inflight_result(const struct inflight *k, struct call *c);
#endif
