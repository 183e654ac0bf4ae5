/* What becomes of one notified ioctl: decode, account, execute, rewrite the view. */
#ifndef MGPU_MEDIATE_H
#define MGPU_MEDIATE_H
#include "../driver/driver.h"
#include "../rm/table.h"
#include "caller.h"
#include "rm_abi.h"

enum {
    OUTER_MAX = 0x3fff,    /* what the size bits of a command can say: arrays have any length */
    PARAMS_MAX = 68 << 10, /* what NVML asks of the card's performance states: 67396 */
};

struct mediator { /* shared by every listener's thread, constant once serving */
    const struct driver_ops *ops;
    struct driver *driver;
    struct files *files;
    struct card card[MAX_CARDS];
    uint32_t cards;
    struct rm_table rm;      /* the sizes of the running driver's version */
    int events;              /* eventfd: tells the daemon to look */
    uint32_t ending_wait_ms; /* ending.h */
};

struct caught;

struct call {
    const struct mediator *m;
    struct tenant *tenant;
    struct caller *caller;
    struct open_file file;
    uint32_t cmd;
    uint64_t outer_at, params_at; /* in the caller */
    uint32_t outer_bytes, params_bytes;
    bool asked;      /* the driver had its say */
    bool again;      /* an earlier worker may have carried some of it out */
    bool apart;      /* as in struct driver_call */
    bool passed;     /* it was let through: what it did is not for us to say */
    bool params_out; /* params changed and go back to the caller */
    /* A check of the parameters that tell this call from another with the same outer struct, as the caller passed them and
     * as they are in its memory when it has been answered. */
    uint32_t said, said_after;
    uint64_t guessed_at;
    size_t guessed_bytes;
    uint64_t waits_since_ms; /* ending.h; 0: it has not waited */
    const atomic_bool *over; /* the arbiter ends; NULL: it does not */
    struct caught *caught;   /* where the next worker finds it; NULL: nowhere */
    _Alignas(16) uint8_t outer[OUTER_MAX];
    _Alignas(16) uint8_t params[PARAMS_MAX];
};

/* Serves call->caller's notification, whose outer struct has been read. Returns what ioctl() returns: 0 with
 * the RM status inside outer, or a negative errno with nothing to write back. */
int mediate(struct call *c);

/* The outer struct's size for a notified command, or -ENOTTY. */
int mediate_outer_bytes(const struct mediator *m, uint32_t cmd);
/* The command is harmless on any file: it is let through whatever its file is, and becomes by a race. */
bool mediate_passes(const struct mediator *m, uint32_t cmd);

/* Where the RM status lies in the outer struct; RM_NO_STATUS: it has none. */
uint32_t mediate_status_at(uint32_t cmd);

/* What a call is to the replay of calls that were interrupted. Changing: done twice it would be another call. */
bool call_changes(const struct call *c);

/* Fetches `bytes` of parameters at `at` in the caller into c->params. -EFAULT; -EINVAL when too large. */
int call_params(struct call *c, uint64_t at, uint32_t bytes);

/* The tenant's object of that name, if its client was made through the very file of this call; 0 otherwise. The
 * tenant is held. */
uint32_t call_find(const struct call *c, uint32_t client, uint32_t handle);
uint32_t call_find_on(const struct call *c, const struct open_file *file, uint32_t client, uint32_t handle);

/* The file on which the clients of the call's file are: a control file itself, a card's file the one that it is registered
 * with (RmIoctl()). False: it is registered with none. */
bool call_control_file(const struct call *c, struct open_file *out);

/* The call with its copied arguments, for the driver, on that file; in nobody's name. */
struct driver_call call_for_driver(struct call *c, const struct open_file *file);

/* Hands the call to the driver with the copied arguments. */
int call_driver(struct call *c);
/* The same; aux: the file behind an fd inside the outer struct, or NULL. *reply_fd: a file that the driver put in its
 * place, or -1; NULL where none can come. */
int call_driver_with(struct call *c, const struct open_file *aux, int *reply_fd);
/* The same with another outer struct than the caller's, on another file perhaps. */
int call_driver_on(struct call *c, const struct open_file *file, uint32_t cmd, void *outer,
                   uint32_t outer_bytes);

/* A call without parameters that no caller has made, and that makes no client. aux as above. */
int mediator_call(const struct mediator *m, const struct open_file *file, const struct open_file *aux,
                  uint32_t cmd, void *outer, uint32_t outer_bytes);

/* Handlers of the larger escapes. */
int mediate_alloc(struct call *c);
int mediate_alloc_short(struct call *c);
int mediate_alloc_object(struct call *c);
int mediate_alloc_memory(struct call *c);
int mediate_heap(struct call *c);
int mediate_dup(struct call *c);
int mediate_share(struct call *c);
int mediate_free(struct call *c);
int mediate_control(struct call *c);
int mediate_card_info(struct call *c);
int mediate_attach_gpus(struct call *c);
int mediate_map(struct call *c);
int mediate_unmap(struct call *c);
int mediate_map_dma(struct call *c);
int mediate_os_event(struct call *c);

/* Commands of nvidia-uvm. The outer struct is that of the few that are executed; -ENOTTY: not a command of it. */
int uvm_outer_bytes(const struct mediator *m, uint32_t cmd);
bool uvm_passes(const struct mediator *m, uint32_t cmd);
int mediate_uvm(struct call *c);
int mediate_map_external(struct call *c);
int register_gpu_vaspace(struct call *c);
/* What an earlier worker may have left of an export: there is none at that place any more, in the driver and in the books. first:
 * of the file. */
void export_undo(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t client,
                 uint32_t place, bool first);
/* ... of an event's file, where it was told or was to be forgotten: nothing is. */
void os_event_undo(const struct mediator *m, const struct open_file *file, uint32_t client, uint32_t fd);
/* ... and of a duplicate: its object is shared no more with the client that was to have it. */
void dup_undo_share(const struct mediator *m, struct tenant *t, const struct rm_dup *d);
/* One that an earlier worker began, of the file, made to its end. The tenant's calls are held. */
int uvm_again(const struct mediator *m, struct tenant *t, const struct open_file *file, uint32_t cmd,
              uint8_t *outer);

/* Every charge of an open file that is gone ends; called once per file. Whether the tenant has no listener: the file may have been
 * the last that it waited for. The tenant's calls are held. */
bool mediate_file_gone(const struct mediator *m, const struct open_file *file);
/* Root clients that were let through on it are none any more. The tenant is held. */
void let_through_forget(struct tenant *t, uint64_t file);

const struct card *mediator_card(const struct mediator *m, uint32_t index);
/* Some of the cards are MIG instances. */
bool mediator_has_instances(const struct mediator *m);
#endif
