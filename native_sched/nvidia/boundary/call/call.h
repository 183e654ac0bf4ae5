/* One notified ioctl while it is served, and the calls of the driver that are made for it. */
#ifndef MGPU_CALL_H
#define MGPU_CALL_H
#include "answer.h"
#include "native_sched/nvidia/driver/driver.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "native_sched/nvidia/rm/table.h"
#include "native_sched/process/caller.h"

enum { PARAMS_MAX = 68 << 10 }; /* what NVML asks of the card's performance states: 67396 */
/* The largest of a call that changes something: so much is kept of it. */
enum { KEPT_OUTER_MAX = 184, KEPT_PARAMS_MAX = 376 };

struct mediator { /* shared by every listener's thread; constant once serving, but for cards that are added */
    const struct driver_ops *ops;
    struct driver *driver;
    struct files *files;
    struct card card[MAX_CARDS];
    atomic_uint cards;
    struct rm_table rm;          /* the sizes of the running driver's version */
    int events;                  /* eventfd: tells the daemon to look */
    uint32_t close_wait_ms;      /* close_wait.h */
    uint32_t evict_wait_ms;      /* parked.h; 0: no call is parked */
    uint64_t memory_block_bytes; /* the kernel's; 0: it has none */
};

struct inflight;

struct call {
    const struct mediator *m;
    struct tenant *tenant;
    struct caller *caller;
    struct open_file file;
    uint32_t cmd;
    const struct rm_row *row;        /* of cmd; NULL: none, it is refused */
    const struct rm_row *params_row; /* of the class or control that outer names, once it is read */
    uint64_t outer_at, params_at;    /* in the caller */
    uint32_t outer_bytes, params_bytes;
    bool asked;      /* the driver had its say */
    uint64_t again;  /* the previous mgpud may have carried some of it out: its notification then; 0: none */
    bool unshared;   /* as in struct driver_call */
    bool passed;     /* as_caller() made it: what it did, the driver says */
    bool params_out; /* params changed and go back to the caller */
    /* A check of the parameters that tell this call from another with the same outer struct, as the caller
     * passed them and as they are in its memory when it has been answered. */
    uint32_t params_check, params_check_after;
    uint64_t guessed_at;
    size_t guessed_bytes;
    uint64_t waits_since_ms; /* close_wait.h; 0: it has not waited */
    uint64_t lent_ns;        /* parked.h; 0: never; UINT64_MAX: in this very try */
    bool may_park;           /* parked.h: it may be answered later */
    struct ledger *lacks_on; /* PARK: what of the tenant's lacks memory, and how much */
    uint64_t lacks_bytes;
    const atomic_bool *over;   /* the arbiter ends; NULL: it does not */
    struct inflight *inflight; /* where the next mgpud finds it; NULL: nowhere */
    _Alignas(16) uint8_t outer[OUTER_MAX];
    _Alignas(16) uint8_t params[PARAMS_MAX];
};

/* Finds the call's row, which says how large its outer struct is. -ENOTTY: it has none. */
int call_find_row(struct call *c);
/* The outer struct is there. */
void call_find_params_row(struct call *c);
/* Done twice it would be another call: it makes or frees something. */
bool call_changes(const struct call *c);
/* The RM status in the outer struct; NV_OK where it has none. */
uint32_t call_status(const struct call *c);

/* A check of a control's parameters, which tell it from another with the same outer struct. */
uint32_t call_params_check(const struct call *c);

/* The tenant's object of that name, if its client was made through the very file of this call; 0: none. */
uint32_t call_find(const struct call *c, uint32_t client, uint32_t handle);
/* The same; 0 too where it is of another kind. */
uint32_t call_find_kind(const struct call *c, uint32_t client, uint32_t handle, enum rm_kind kind);
uint32_t call_find_on(const struct call *c, const struct open_file *file, uint32_t client, uint32_t handle);

/* The file on which the clients of the call's file are: a control file itself, a card's file the one that it
 * is registered with (RmIoctl()). False: it is registered with none. */
bool call_control_file(const struct call *c, struct open_file *out);

/* The call with its copied arguments, for the driver, on that file; in no process's name. */
struct driver_call call_for_driver(struct call *c, const struct open_file *file);

/* The driver says that only the caller itself can make the call. */
bool call_is_callers(struct call *c);

/* Makes it, for the call, if its caller still waits. */
int call_execute(struct call *c, struct driver_call *d);

/* Hands the call to the driver with the copied arguments. */
int call_driver(struct call *c);
/* The same; aux: the file behind an fd inside the outer struct, or NULL. *reply_fd: a file that the driver
 * put in its place, or -1; NULL where none can come. */
int call_driver_with(struct call *c, const struct open_file *aux, int *reply_fd);
/* The same with another outer struct than the caller's, on another file perhaps. */
int call_driver_on(struct call *c, const struct open_file *file, uint32_t cmd, void *outer,
                   uint32_t outer_bytes);

/* A command of nvidia-uvm that does not look at the descriptor in its struct. */
int call_uvm_without_fd(struct call *c, int32_t *fd);

/* A call without parameters that no caller has made, and that makes no client. aux as above. */
int mediator_call(const struct mediator *m, const struct open_file *file, const struct open_file *aux,
                  uint32_t cmd, void *outer, uint32_t outer_bytes);

const struct card *mediator_card(const struct mediator *m, uint32_t index);
/* Some of the cards are MIG instances. */
bool mediator_has_instances(const struct mediator *m);
#endif
