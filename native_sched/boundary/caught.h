/* The call that a listener's thread is at, where the next worker finds it: a notification that was received and not answered
 * is never received again, and its caller waits for ever.
 *
 * RECV writes the notification right into the page. What a call is about to change in the driver is written down before it
 * is asked (caught_intend), what came of it before the caller is told (caught_done). The next worker undoes what was
 * intended and makes the call anew from the caller's own words, or hands over what had come of it already: nothing is
 * done twice, nothing is lost.
 *
 * A worker ends between two instructions: `stage` is stored after what it speaks of. */
#ifndef MGPU_CAUGHT_H
#define MGPU_CAUGHT_H
#include "replay.h"

enum caught_stage {
    CAUGHT_NOTHING,  /* the driver was not asked for anything that lasts */
    CAUGHT_READ,     /* ... and the caller's words are kept: its memory may have changed by the next time */
    CAUGHT_INTENDED, /* the driver may have done it, the books do not count */
    CAUGHT_DONE,     /* the driver and the books have it; what the caller is to be told is kept */
};

/* What is undone by freeing it, or is done once more because twice is the same. */
enum intent {
    INTENT_MAKE,
    INTENT_FREE,
    INTENT_REGISTER,
    INTENT_UVM,
    INTENT_EXPORT,
    INTENT_OS_EVENT, /* handle is the number that the file is known by */
};

struct caught {
    struct seccomp_notif req; /* id 0: none */
    uint32_t stage, check;    /* check: of `was`, where the stage is INTENDED */
    struct caught_intent {
        uint32_t what, client, parent, handle;
        uint64_t file; /* the open file that the driver is asked on */
    } was;
    bool
        begun; /* READ: some of it may be done and in the books, which is what it finds when it is made anew */
    bool written;   /* DONE: the caller's memory may hold it already */
    int32_t result; /* DONE */
    uint32_t params_bytes, params_out_bytes;
    uint32_t said, said_after; /* DONE: as in struct call */
    uint64_t params_at, file;
    _Alignas(16) uint8_t before[REPLAY_OUTER_MAX]; /* READ */
    _Alignas(16) uint8_t params_before[REPLAY_PARAMS_MAX];
    _Alignas(16) uint8_t outer[REPLAY_OUTER_MAX]; /* DONE */
    _Alignas(16) uint8_t params[REPLAY_PARAMS_MAX];
};

/* What a listener has in the journal. */
struct listener_page {
    uint64_t tenant;
    struct caught caught;
    struct replay replay;
};
extern const struct store_layout listener_layout;

/* c->caught NULL: nobody keeps anything. The first two: only for a call that changes something. */
void caught_read(struct call *c, const uint8_t *outer);
void caught_read_params(struct call *c);
/* INTENT_UVM: client is the command; of a mapping, the file is that of the memory's client, and parent and handle are client and
 * memory; of an address space that is registered, the same. INTENT_REGISTER: parent and handle are the two halves of the control
 * file's id. INTENT_EXPORT: the file that is exported through, handle is the place; parent: nothing has been exported through it
 * before. */
void caught_intend(struct call *c, enum intent what, const struct open_file *file, uint32_t client,
                   uint32_t parent, uint32_t handle);
/* What was intended is in the driver and in the books, and the call goes on: it is not undone any more, and made anew the
 * call finds it there. */
void caught_begun(struct call *c);
void caught_done(struct call *c, int result);

/* A later worker, before it serves anything of the tenant: the driver and the books have all of what was intended, or
 * nothing. The audit of the tenant is due in any case. */
void caught_settle(const struct mediator *m, struct tenant *t, struct caught *k);
/* What the caller said, into c: false when it is to be read again. */
bool caught_again(const struct caught *k, struct call *c);
/* What it is to be told, into c. */
void caught_result(const struct caught *k, struct call *c);
#endif
