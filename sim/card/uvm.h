/* Open files of nvidia-uvm. Functions expect the RM lock held.
 *   uvm.c        the file: initialised, which cards, address spaces and channels are registered on it
 *   uvm_ranges.c its ranges, and what is mapped in them; uvm_policies.c what is asked about managed ones
 *
 * What a file holds it has other names for, in a client of its own that no call can be made on: memory and
 * groups stay while it does, charged to the card and counted to no process. */
#ifndef MGPU_SIM_UVM_H
#define MGPU_SIM_UVM_H
#include "../abi/uvm_sizes.h"
#include "memory/managed.h"
#include "rm.h"

struct uvm_range_of; /* a range, and what is mapped in it */

struct uvm_card {
    bool is_registered;
    struct rm_object *device; /* of our client */
    struct vaspace *vaspace;  /* NULL: none is registered */
    uint32_t peers;           /* cards whose memory it reaches: bits by index */
};

/* A channel's group is retained. */
struct uvm_channel {
    struct uvm_channel *next;
    uint32_t client, channel;
    struct rm_object *group;
};

struct uvm {
    bool initialized;
    uint64_t flags;
    struct rm_client *client; /* NULL: not initialised */
    struct uvm_card card[RM_MAX_CARDS];
    struct uvm_channel *channels;
    struct uvm_range_of *ranges;
    struct managed managed;      /* of the process that initialised it */
    uint64_t last_group, groups; /* of ranges: bits by their numbers */
};

/* A command on a file of nvidia-uvm: 0, or the negative errno that ioctl() fails with. */
int uvm_command(struct rm_call *call);
/* Its file is gone, its client not yet. */
void uvm_end(struct rm *rm, struct sim_file *file);

/* uvm_ranges.c: the commands, an enum rm_status each. */
uint32_t uvm_create_range(struct rm_call *call, struct uvm *uvm);
/* The same, and for whose use: of as many cards as are said, of the one that is named. */
uint32_t uvm_create_pool(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_create_region(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_free_range(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_validate_range(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_map_external(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_unmap_external(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_range_policy(struct rm_call *call, struct uvm *uvm);
/* Whether one that is not managed has the address. */
bool uvm_has_range(struct uvm *uvm, uint64_t address);
void uvm_ranges_end(struct rm *rm, struct uvm *uvm);
/* The address space is no longer registered: what was mapped there ends. */
void uvm_ranges_leave(struct rm *rm, struct uvm *uvm, const struct sim_card *card);
/* They are no peers from now on: the memory of one is nowhere mapped on the other. */
void uvm_ranges_part(struct rm *rm, struct uvm *uvm, const struct sim_card *one,
                     const struct sim_card *other);
struct sim_card *uvm_card_named(struct rm *rm, const uint8_t uuid[UVM_UUID_BYTES]);
/* The card that is registered on the file; NULL: none of that name. */
struct uvm_card *uvm_card_of(struct rm *rm, struct uvm *uvm, const uint8_t uuid[UVM_UUID_BYTES],
                             struct sim_card **card);
/* May the file have another name for it, in the name of who calls? */
bool uvm_may_have(const struct rm_call *call, const struct uvm *uvm, const struct rm_object *object);

/* uvm_policies.c: the same. Of a range and a processor; of a group and a range. */
uint32_t uvm_processor_policy(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_create_group(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_destroy_group(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_range_group(struct rm_call *call, struct uvm *uvm);
uint32_t uvm_migrate(struct rm_call *call, struct uvm *uvm);
#endif
