/* What the mediator is put into: two tenants and their files, callers that are bytes of the fuzzer's, and a
 * resource manager that keeps a tree of its own, the judge of the account. */
#ifndef FUZZ_WORLD_H
#define FUZZ_WORLD_H
#include "../../native_sched/nvidia/boundary/notify/mediate.h"
#include "../../native_sched/nvidia/channels/groups.h"
#include "choices.h"

enum { TENANTS = 2, CARDS = 2, TENANT_FILES = 3, NODES = 128 };
enum { EXPORT_FILES = TENANTS * TENANT_FILES, EXPORT_PLACES = 8 };
enum { FILE_OF_OTHERS = 6, NO_FILE = 7 }; /* descriptor numbers of a caller; below: its tenant's files */

struct node { /* an object in the driver */
    bool live;
    uint64_t file;
    uint32_t client, handle, class_id, card;
    int parent;             /* -1: a root client */
    uint64_t bytes, memory; /* memory: its number, the same for all its names; 0: it is none */
    uint32_t shared_with;   /* a client; 0: none */
    uint32_t peers[2];      /* of NV50_P2P: its subdevices */
    bool is_channel, has_userd;
    bool scheduled; /* a group is on its runlist */
    bool disabled;  /* a channel is */
};

/* A file that is exported through. */
struct export_file {
    uint64_t file; /* 0: none */
    uint32_t places;
    struct node at[EXPORT_PLACES];
};

struct made { /* a call */
    uint32_t cmd;
    uint64_t fd;
    uint32_t pid;
    _Alignas(16) uint8_t outer[OUTER_MAX];
};

struct world {
    struct choices *choices;
    struct mediator m;
    struct files files;
    struct tenant tenant[TENANTS];
    uint64_t open[TENANTS][TENANT_FILES]; /* file ids; 0: closed */
    uint64_t last_file;
    struct node node[NODES];
    struct export_file exports[EXPORT_FILES];
    uint64_t last_memory;
    const struct made *made; /* the call as its caller made it: what lies behind its pointer is of its kind */
    const uint8_t *outer; /* of the call being mediated: what comes with another one is the mediator's own */
    int userd_maps;
};

extern struct world world;

/* made.c: something that a program might call, and what its parameters might be. */
void some_call(struct choices *c, struct made *made);
void some_params(struct choices *c, const struct made *made, void *params, size_t bytes);

/* model.c: the driver. */
extern const struct driver_ops model_ops;
void model_file_gone(uint64_t file);
int model_find(uint32_t client, uint32_t handle);
int model_find_client(uint32_t client, uint64_t file);

/* model_share.c: an RM status; whether it is a control of these. */
uint32_t model_dup(const struct driver_call *call, const struct rm_dup *d);
uint32_t model_share(const struct driver_call *call, const struct rm_share *s);
bool model_exports(const struct driver_call *call, uint32_t client, uint32_t cmd, uint32_t *status);
void model_exports_gone(uint64_t file);

/* Aborts with a line unless all that must always hold does. */
void check_books(void);
__attribute__((noreturn, format(printf, 1, 2))) void broken(const char *format, ...);
#endif
