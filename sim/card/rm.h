/* The simulated driver's state: cards, open files, clients and their object trees, all under one lock, as the
 * driver has one. Functions here expect it held unless they say otherwise.
 *   cards.c   the cards of this process and who they are
 *   uevent.c  what the node is told of them, reload.c the driver loaded anew
 *   files.c   open files, hang-up, subscribers
 *   objects.c clients and object trees
 *   classes.c what allocating an object of a class does
 *   end.c     what ends with an object
 *   compute.c the classes of channels: groups, channels, their memory and doorbells
 *   escapes.c the ioctls, controls.c the control commands
 *   dup.c     memory that has several names
 *   exports.c memory that is exported through open files
 *   pages.c   memory of a process's own pages, memory/process_map.h what is mapped by one
 *   peers.c   what cards are to each other
 *   dma.c     what is mapped without nvidia-uvm, uvm.h nvidia-uvm, memory/managed.h managed memory
 *   answers.c the controls that only ask, answers_gr.c those of the graphics engine, control_sizes.c how
 *             large they are
 *   chip.c    which classes a chip has
 *   events.c  events, and the files that they wake
 *   mapping.c what a program maps
 *   schedule.c the controls of groups and channels
 *   third_party.c what a NIC's driver reaches
 *
 * A card's engines have a lock of their own (gpu/gpu.h), taken under this one. */
#ifndef MGPU_SIM_RM_H
#define MGPU_SIM_RM_H
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../native_sched/nvidia/rm/table.h"
#include "../abi/protocol.h"
#include "gpu/gpu.h"
#include "heap.h"
#include "memory/space.h"
#include "profiles.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { RM_SHARES = 4 };
enum { RM_HASH_BUCKETS = 1 << 17, RM_FILE_BUCKETS = 4096 };

struct sim_card {
    const struct card_profile *profile;
    uint32_t index, minor, gpu_id;
    uint8_t pci_slot;
    char uuid[48], pci[24];
    struct heap heap;
    struct gpu *gpu;
    bool asked; /* how many subdevices it has: the answer is kept */
    bool lost;  /* fallen off the bus: it executes nothing, and its objects can only be freed */
};

struct rm_object {
    struct rm_client *client;
    struct rm_object *parent, *child, *next, *prev;
    struct rm_object *hash_next;
    struct sim_card *card; /* NULL above a device */
    /* Ends what its class has made of it, before the object itself is freed; NULL: nothing. */
    void (*release)(struct rm_object *object);
    uint64_t bytes;        /* taken from the card's heap */
    uint64_t memory_bytes; /* the same for all names of a memory */
    uint32_t handle, class_id;
    struct rm_object *alias_next, *alias_prev; /* other names of the same memory, in a ring; NULL: none */
    /* Processes and clients (0: none) that may alias it and what is below it: bits by enum rm_share_type. */
    uint32_t shared, shared_with[RM_SHARES];
    bool share_said;         /* or it is as the object above has it */
    bool uvms;               /* a channel, or group, in an address space of nvidia-uvm's */
    bool bound;              /* it is registered there, or need not be: it only copies */
    uint32_t engine_type;    /* groups and channels */
    struct vaspace *vaspace; /* its own, or the one that a group's channels run in; NULL: none */
    union {                  /* by class; NULL: an object without */
        struct sysmem *memory;
        struct gpu_group *group;
        struct gpu_channel *channel;
        struct gpu_doorbell *doorbell;
        uint32_t instance; /* of a subdevice */
        uint32_t peers[2]; /* of two cards made peers: the subdevices that it was made with */
        struct third_party *third_party;
    };
};

/* A root object: usable only through the file it was made on. */
struct rm_client {
    struct rm_object root;
    struct rm_client *next, *prev; /* all clients */
    struct sim_file *file;
    int32_t tgid;
    uint32_t uid;
    bool internal; /* the driver's own: no call is made on it */
    uint32_t next_handle;
    struct sysmem_quota *sysmem;
    uint32_t doorbells, channels;
};

struct sim_file {
    struct sim_file *hash_next;
    uint64_t id;
    enum sim_node node;
    struct sim_card *card;   /* SIM_NODE_CARD */
    uint64_t control_id;     /* SIM_NODE_CARD: id of the control file, 0 = none yet */
    int32_t tgid;            /* who opened it */
    bool attached;           /* SIM_NODE_CTL: cards were attached by it */
    int end;                 /* the card's: see files.c */
    struct uvm *uvm;         /* SIM_NODE_UVM: NULL: nothing was asked of it */
    struct exports *exports; /* SIM_NODE_CTL: NULL: nothing was exported through it */
};

struct rm {
    pthread_mutex_t lock;
    const char *version;              /* of the driver it plays, one that the table knows */
    uint32_t major, minor;            /* the same in numbers; UINT32_MAX: the newest of its branch */
    struct rm_table table;            /* its sizes */
    uint32_t machine;                 /* of which the cards are: other UUIDs */
    uint32_t call_us;                 /* how long a call that reaches the card holds the lock */
    uint32_t reread_us;               /* how long continued calls wait before their arguments are read */
    uint32_t tail_us, tail_per_mille; /* how much longer so many of a thousand take */
    uint64_t tail_seed;
    bool disables_channels; /* or DISABLE_CHANNELS is not supported */
    bool shows_engines;     /* or their status cannot be read */
    bool data;              /* the cards' memory has contents */
    uint32_t close_us;      /* from the last close of a file to its end */
    /* What the library takes for a device and for a context besides its calls. */
    uint32_t init_us, context_us;
    uint32_t switch_us, copy_mib_per_ms; /* 0 MiB: as the profile has it */
    uint32_t card_count;
    struct sim_card cards[RM_MAX_CARDS];
    struct rm_client *clients;
    struct os_event *os_events;
    struct dma_mapping *dma_mappings;
    struct third_party *third_parties;
    struct rm_object *objects[RM_HASH_BUCKETS];
    struct sim_file *files[RM_FILE_BUCKETS];
    uint64_t last_file;
    uint64_t memblock_bytes; /* of SYS_PARAMS; 0: not set yet */
    uint32_t last_client_handle;
    uint64_t calls;
    int hangup_epoll;
};

/* One ioctl being executed. Buffers are changed in place and travel back. */
struct rm_call {
    struct rm *rm;
    struct sim_file *file;
    uint64_t aux_file;
    int32_t tgid;
    uint32_t cmd;
    void *outer, *params;
    uint32_t outer_bytes, params_bytes;
    int reply_fd;    /* MAP_MEMORY: to travel with the reply; -1 = none */
    uint32_t own_us; /* how long the caller waits after it, without the lock: others' calls go on */
};

/* cards.c. "v100-16:2,a10" -> rm->cards; -EINVAL with one line on stderr. */
int cards_parse(struct rm *rm, const char *list);
/* -EINVAL with one line on stderr where the driver of that version knows a card's chip not yet. */
int cards_are_known(const struct rm *rm);
/* Their engines; negative errno. */
int cards_start(struct rm *rm);
/* One more, of that profile, with its engines; NULL: there is no such profile, or no room for it. */
const struct sim_card *cards_plug(struct rm *rm, const char *key);
struct sim_card *card_by_minor(struct rm *rm, uint32_t minor);
struct sim_card *card_by_gpu_id(struct rm *rm, uint32_t gpu_id);
/* Whether they reach each other's memory over the bus: two of a kind do. */
bool cards_are_peers(const struct sim_card *a, const struct sim_card *b);

/* uevent.c, lock not held: tells the node's programs, as udev would, of a card or of the driver. */
void uevent_of_card(const struct sim_card *card, const char *action);
void uevent_of_driver(const char *action);

/* reload.c: the driver is loaded anew: the program becomes itself, without its files, clients and objects. */
void reload_keep(char **argv);
/* cards: as in --cards; "": those that there are. -EINVAL: there are no such. */
int reload_prepare(struct rm *rm, const char *cards);
void reload_now(void);

/* file_table.c */
void file_add(struct rm *rm, struct sim_file *file);
void file_forget(struct rm *rm, const struct sim_file *file);
struct sim_file *file_find(struct rm *rm, uint64_t id);
/* The file on which the clients are that are called on by this one: the control file that a card's is
 * registered with. */
const struct sim_file *file_of_clients(struct rm *rm, const struct sim_file *file);
/* files.c */
bool file_is_held(struct rm *rm, uint64_t id); /* it is there, and some process has it open */
int file_open(struct rm *rm, const struct sim_request *request, struct sim_file **file, int *fd);
/* Runs for ever, lock not held: frees what belongs to files whose last reader is gone. */
void files_watch(struct rm *rm);

/* subscribers.c, lock not held. */
/* Events only, until the peer is gone. */
void subscribers_stream(int connection);
void subscribers_tell(const struct sim_event *event);

/* objects.c */
struct rm_client *client_create(struct rm *rm, struct sim_file *file, uint32_t handle, int32_t tgid);
struct rm_client *client_find(struct rm *rm, uint32_t handle, const struct sim_file *file);
uint32_t client_status(struct rm *rm, uint32_t handle, const struct sim_file *file);
bool client_handle_taken(struct rm *rm, uint32_t handle);
struct rm_object *object_create(struct rm *rm, struct rm_object *parent, uint32_t handle, uint32_t class_id);
struct rm_object *object_find(struct rm *rm, uint32_t client, uint32_t handle);
/* The device that the object is below, or is; NULL: none. */
const struct rm_object *object_device(const struct rm_object *object);
uint32_t object_new_handle(struct rm *rm, struct rm_client *client);
/* Takes heap for an object; false when the card has no room. */
bool object_take(struct rm_object *object, uint64_t bytes);
/* It is found and counted no more, and freed; a root object's client with it. */
void object_drop(struct rm *rm, struct rm_object *object);
/* Whether the client holds an object of that class on that card. */
bool client_has_class(const struct rm_client *client, const struct sim_card *card, uint32_t class_id);
/* end.c: frees the object and everything below it; a root object's client with it. */
void object_free(struct rm *rm, struct rm_object *object);
void objects_free_file(struct rm *rm, const struct sim_file *file);

/* dup.c: the escapes DUP_OBJECT and SHARE, and what happens to memory whose one name ends. */
int dup_object(struct rm_call *call);
int share_object(struct rm_call *call);
/* Whether the client may have another name for it. */
bool may_dup(const struct rm_object *source, const struct rm_client *to);
void leave_aliases(struct rm_object *object);
/* Another name of the source's memory; NULL: the host has no room. */
struct rm_object *object_alias(struct rm *rm, struct rm_object *parent, uint32_t handle,
                               struct rm_object *source);

/* kinds.c */
bool class_is_channel(uint32_t class_id);
bool class_is_usermode(uint32_t class_id);
bool class_has_names(uint32_t class_id);
bool class_is_unique(uint32_t class_id);
/* May have a second name, and be exported. */
bool class_is_shared(uint32_t class_id);

/* classes.c: an enum rm_status. *handle 0 = choose one. */
uint32_t class_alloc(struct rm_call *call, uint32_t root, uint32_t parent, uint32_t *handle,
                     uint32_t class_id);

/* memory_params.c: NV_OK, or what RM refuses all memory with. */
uint32_t memory_params_status(const struct rm_memory *params);
uint64_t memory_page_bytes(const struct rm_memory *params);
/* By which pages it is mapped. */
void memory_say_pages(struct rm_memory *params, uint64_t page);

/* compute.c: constructors return an enum rm_status. */
uint32_t system_memory_alloc(struct rm_call *call, struct rm_object *object);
uint32_t vaspace_alloc(struct rm_call *call, struct rm_object *object);
uint32_t context_share_alloc(struct rm_call *call, struct rm_object *object);
uint32_t channel_group_alloc(struct rm_call *call, struct rm_object *object);
uint32_t channel_alloc(struct rm_call *call, struct rm_object *object);
uint32_t usermode_alloc(struct rm_call *call, struct rm_object *object);
void system_memory_free(struct rm_object *object);
void memory_free(struct rm_object *object);
void vaspace_free(struct rm_object *object);
void channel_group_free(struct rm_object *object);
void channel_free(struct rm_object *object);
void usermode_free(struct rm_object *object);

/* mapping.c: the escapes MAP_MEMORY and UNMAP_MEMORY; what SIM_USERD answers, an fd or negative errno. */
int map_memory(struct rm_call *call);
int unmap_memory(struct rm_call *call);
int userd_fd(struct rm *rm, uint64_t file, const struct sim_userd_of *of, uint64_t *offset);

/* pages.c: the escape ALLOC_MEMORY. */
static inline bool pages_unreached(const struct rm_object *memory)
{
    return memory->class_id == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR && !memory->memory;
}
/* How much of a memory can be mapped. */
static inline uint64_t mappable_bytes(const struct rm_object *memory)
{
    if (memory->memory)
        return memory->memory->bytes;
    return pages_unreached(memory) ? UINT64_MAX : memory->memory_bytes;
}
int pages_alloc(struct rm_call *call);
/* dma.c: the escapes MAP_MEMORY_DMA and UNMAP_MEMORY_DMA, and the classes of virtual memory. */
int map_dma(struct rm_call *call);
int unmap_dma(struct rm_call *call);
uint32_t virtual_memory_alloc(struct rm_call *call, struct rm_object *object);
/* A memory object ends: nothing of it is mapped so from now on. */
void dma_forget(struct rm *rm, const struct rm_object *memory);
/* events.c: the escapes ALLOC_OS_EVENT and FREE_OS_EVENT, and the class. */
int os_event_alloc(struct rm_call *call);
int os_event_free(struct rm_call *call);
uint32_t event_alloc(struct rm_call *call, struct rm_object *object);
/* Those of a file that is gone, or of a client; 0: of none. */
void os_events_end(struct rm *rm, uint64_t file, uint32_t client);

/* escapes.c: 0 or the negative errno that ioctl() fails with. */
int escape(struct rm_call *call);

/* controls.c: an enum rm_status. */
uint32_t control(struct rm_call *call, const struct rm_control *ctl);

/* schedule.c: the same. */
struct rm_request { /* a control being executed: params are as large as the driver's version has them */
    struct rm *rm;
    struct rm_object *object;
    const struct sim_card *card;
    void *params;
    uint32_t params_bytes;
    uint64_t aux_file;
};

/* answers.c, answers_gr.c, events.c: the same. */
uint32_t answer_control(const struct rm_request *request, uint32_t cmd);
uint32_t subdevices(const struct rm_request *request);

/* control_sizes.c: whether this driver's version has the control; any size fits one that it does not have. */
bool control_is_known(const struct rm *rm, uint32_t cmd);
bool control_size_fits(const struct rm *rm, uint32_t cmd, uint32_t params_bytes);
/* The i-th list that the parameters point to, of as many elements as they say; NULL: they point to none. */
void *request_list(const struct rm_request *request, uint32_t element_bytes, uint32_t i, uint32_t *count);
uint32_t set_notification(const struct rm_request *request);
uint32_t gr_sm_version(const struct card_profile *profile);
uint32_t gr_info(const struct rm_request *request);
uint32_t gr_gpc_mask(const struct rm_request *request);
uint32_t gr_tpc_mask(const struct rm_request *request);
uint32_t gr_sm_order(const struct rm_request *request);
uint32_t of_channel(const struct rm_request *request);
uint32_t preemption_mode(const struct rm_request *request);
uint32_t work_token(const struct rm_request *request);
uint32_t channel_numbers(const struct rm_request *request);
uint32_t class_engine(const struct rm_request *request);
uint32_t tsg_schedule(const struct rm_request *request);
uint32_t tsg_set_timeslice(const struct rm_request *request);
uint32_t tsg_get_timeslice(const struct rm_request *request);
uint32_t tsg_set_interleave(const struct rm_request *request);
uint32_t tsg_preempt(const struct rm_request *request);
uint32_t tsg_info(const struct rm_request *request);
uint32_t disable_channels(const struct rm_request *request);

/* third_party.c: memory that other devices' drivers reach for a process, and the controls of that. */
uint32_t third_party_alloc(struct rm_call *call, struct rm_object *object);
void third_party_free(struct rm_object *object);
/* A name of memory ends. */
void third_party_forget(struct rm *rm, const struct rm_object *memory);
uint32_t third_party_space(const struct rm_request *request);
uint32_t third_party_no_space(const struct rm_request *request);
uint32_t third_party_process(const struct rm_request *request);
uint32_t third_party_memory(const struct rm_request *request);
uint32_t third_party_no_memory(const struct rm_request *request);
/* For which processes drivers get what. */
void third_party_print(struct rm *rm, FILE *out);
/* peers.c: the same. */
uint32_t p2p_caps(const struct rm_request *request);
uint32_t p2p_matrix(const struct rm_request *request);
uint32_t link_caps(const struct rm_request *request);
uint32_t link_status(const struct rm_request *request);

/* dup.c, exports.c: the same. */
uint32_t inherited_share(const struct rm_request *request);
uint32_t export_object(const struct rm_request *request);
uint32_t export_objects(const struct rm_request *request);
uint32_t export_create(const struct rm_request *request);
uint32_t export_info(const struct rm_request *request);
uint32_t import_object(const struct rm_request *request);
uint32_t import_objects(const struct rm_request *request);
void exports_free(struct sim_file *file);
#endif
