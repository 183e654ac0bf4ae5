/* The table that every GPU driver is behind: the mediator and the scheduler run the same code on each.
 * Functions return 0 or a positive value, or a negative errno. */
#ifndef MGPU_DRIVER_H
#define MGPU_DRIVER_H
#include "native_sched/nvidia/account/files.h"

struct driver;
struct chip;
struct caller;
struct rm_table;
struct rm_row;
struct rm_pid_info;
struct rm_pids;

enum { OUTER_MAX = 0x3fff }; /* the largest size that a command's bits can hold; arrays have any length */

struct driver_call {
    const struct open_file *file;
    const struct open_file *aux_file; /* the file behind an fd inside the outer struct, or NULL */
    const struct rm_table *rm;        /* sizes of the running driver's version */
    pid_t tgid;                       /* the client's process, where the call makes a client */
    uint32_t cmd;
    const struct rm_row *row;        /* of cmd; NULL: the driver looks for both */
    const struct rm_row *params_row; /* of the class or control that outer names */
    uint8_t *outer, *params;         /* in and out; the driver sets the params pointer inside outer */
    uint32_t outer_bytes, params_bytes;
    uint32_t params_max; /* as_caller(): room behind params */
    uint64_t params_at;  /* as_caller(), out: where in the caller they are */
    /* The driver may close descriptors by number after it, so it is made as an unshared call. */
    bool unshared;
    int reply_fd; /* out: a file that replaces the caller's fd in the outer struct, or -1 */
};

/* The place of a channel's USERD, from its allocation: an offset inside a memory object of the same client.
 */
struct userd_place {
    const struct card *card; /* that the channel is on */
    uint32_t class_id, memory;
    uint64_t offset;
};

/* An RM object: handles have a meaning only through the open file that their client was made on. */
struct rm_target {
    struct open_file file;
    uint32_t client, handle;
    const struct rm_table *rm; /* sizes of the driver's version; NULL: the newest known */
    struct userd_place userd;  /* channels only, memory 0: not said. sim's card knows it by itself. */
};

/* A channel's USERD, mapped read-only. Its owner writes there as it likes: hints, never facts. */
struct userd {
    const volatile uint8_t *at;
    void *map;
    size_t map_bytes;
    void *owner;  /* the driver's own */
    bool has_get; /* GP_GET: else it is not said what the card has fetched */
};

/* Groups are numbered among those that may be on the same engines. */
struct engine_status {
    uint32_t tsg_id;  /* the channel group on the engine */
    uint64_t engines; /* that it may have been made for, a bit each */
    bool busy;        /* it executes, or is being switched */
};
enum { ENGINES_MAX = 64 };
/* No group has that number. */
#define ANOTHER_S UINT32_MAX

/* What RM has sampled of a card's engines, by its own clock: the newest sample, and the one before. */
struct card_samples {
    uint64_t newest_ns, before_ns;
    bool used; /* an engine did something in the newest */
};

/* The bit of an engine, by its number in a channel group's parameters; 0: it is not polled. */
static inline uint64_t engine_bit(uint32_t engine_type)
{
    return engine_type < 64 ? 1ull << engine_type : 0;
}

struct driver_ops {
    const char *name;
    /* dir: where the driver's own sockets are (sim), unused otherwise. */
    int (*open)(const char *dir, struct files *files, struct driver **out);
    /* After the last call, next_closed() included. */
    void (*close)(struct driver *d);

    /* Identifies the driver file behind fd `fd` of the notified caller. Fills `out` with a file of tenant
     * `t`. -ENOTTY: no driver file; -EPERM: one, but not this tenant's. */
    int (*identify)(struct driver *d, struct caller *c, struct tenant *t, int fd, struct open_file *out);

    /* Adopts a file of the previous mgpud, on which no call is under way. client: a root client that was made
     * through it, 0: none is known. holds: memory may be charged that only this file keeps. 0: it is open, or
     * it holds and may be unlocated; it keeps its id, and next_closed() will report it. -EBADF: it is closed,
     * or cannot be found. NULL: open() has dropped those that are closed from the table. */
    int (*adopt)(struct driver *d, const struct open_file *file, uint32_t client, bool holds);

    /* Keeps the file open, and within reach of execute(), until unpin(): one at a time of a tenant's. NULL:
     * it is in reach as long as it is open. */
    int (*hold_file)(struct driver *d, const struct open_file *file);
    void (*unpin)(struct driver *d, const struct open_file *file);

    /* Makes the ioctl on that open file, with copied arguments. An RM failure is 0 here and a status in
     * outer. -EBADF: the file is closed. -EAGAIN: nothing was done, since the file is open but unlocated.
     * -EINPROGRESS: nothing was done, must_continue() is true of it. */
    int (*execute)(struct driver *d, struct driver_call *call);

    /* True for a call that only the caller itself can make, since the driver uses the calling process, or the
     * arguments name its descriptors or memory: the call is continued, and audited. NULL: there is none. */
    bool (*must_continue)(const struct driver_call *call);

    /* Where no kernel takes the call up after CONTINUE: makes it as the caller would, from the caller's
     * memory of that time, and leaves in `call` what is to be written there. NULL: the kernel does it. */
    int (*as_caller)(struct driver *d, struct caller *c, uint64_t outer_at, struct driver_call *call);

    /* Adds a card, before any tenant of it: what engine_status() needs. The struct stays where it is. NULL:
     * nothing is needed. */
    void (*add_card)(struct driver *d, const struct card *card);
    /* Until the card is added anew, no file of it is open here but tenants', and engine_status() is not
     * asked. Twice is as once. alone: there are no tenants; the last card takes the driver's own files too.
     */
    void (*release_card)(struct driver *d, const struct card *card, bool alone);

    /* RM's own number of the card, by which programs ask for it; a negative errno. NULL: it stays as it was
     * added. */
    int (*device_instance)(struct driver *d, uint32_t minor);

    /* Measures what the driver takes by itself for one more channel group on that card: of the graphics
     * engine or of a copy engine. NULL: it is known by other means. */
    int (*context_bytes)(struct driver *d, const struct rm_table *rm, uint32_t minor, bool copies,
                         uint64_t *out);

    /* What the driver takes of the card by itself for an object of that class with these parameters, beside
     * the object's reported size and a group's context_bytes(). UINT64_MAX: more than any card has. NULL:
     * nothing. */
    uint64_t (*own_bytes)(uint32_t class_id, const void *params);

    /* Bytes of managed memory between two addresses of the process whose map (/proc/TID/maps) is open as
     * `map`: a range that mmap() of nvidia-uvm has made. A negative errno: the thread has exited, or its
     * memory is gone. NULL: there is no such memory. */
    int64_t (*managed)(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to);
    /* 1: the file of nvidia-uvm was initialised with exactly these flags, and its cards reach no other memory
     * of the process; 0: in another way; -ENODATA: not at all yet; -EBADF: it is closed; another error: it
     * cannot be asked now. */
    int (*initialized)(struct driver *d, const struct open_file *file, uint64_t flags);

    /* Whether any process has a root client of that name: 0 or 1, or a negative errno. */
    int (*client_exists)(struct driver *d, uint32_t client);

    /* The driver's own count for the processes in `info` on that card, by the control GET_PID_INFO: the
     * audit. -ENXIO: the card is lost. */
    int (*pid_info)(struct driver *d, uint32_t minor, struct rm_pid_info *info);
    /* The processes that have a subdevice there, by the control GET_PIDS: NVIDIA's lists none by a device. */
    int (*pids)(struct driver *d, uint32_t minor, struct rm_pids *out);
    /* Whether the process's descriptor `fd`, of its folder of descriptors, is of a file in the table. */
    bool (*known_file)(struct driver *d, pid_t pid, int dir, const char *fd, struct open_file *out);

    /* pid_ns: of each tenant the pid namespace whose processes may receive the driver's open files from
     * others (0: it has none). All other processes but those of the initial namespace are kept from it, also
     * while no mgpud runs. 1: they are; 0: the kernel cannot do that. NULL: nothing does. */
    int (*guard)(struct driver *d, const uint32_t *pid_ns, uint32_t tenants);

    /* Blocks until the last close of a file of the driver has begun: its id, or a negative errno. */
    int64_t (*next_closed)(struct driver *d);
    /* Whether one of these files is closed, or closed by its processes. NULL: next_closed() reports it at
     * once.
     */
    bool (*any_closing)(struct driver *d, const struct open_file *file, uint32_t files);
    /* The tenant has no process left: its unlocated files are closed. NULL: every file can be located. */
    void (*tenant_exited)(struct driver *d, const struct tenant *t);
    /* From now on next_closed() fails, also in a thread that waits in it. */
    void (*stop_watch)(struct driver *d);

    /* Polling costs no call to the driver. An error of userd_map() may be RM's status (group_control.h). */
    int (*userd_map)(struct driver *d, const struct rm_target *channel, struct userd *out);
    void (*userd_unmap)(struct userd *userd);
    /* Fills out for the engines of the card that are among these and returns how many; 0: their status cannot
     * be read; a negative errno: not at present. */
    int (*engine_status)(struct driver *d, const struct card *card, uint64_t engines,
                         struct engine_status *out);
    /* -ENODATA: there is none. A call of the driver. NULL: it samples nothing. */
    int (*samples)(struct driver *d, const struct card *card, const struct rm_table *rm,
                   struct card_samples *out);
    /* Since add_card(); NULL: nothing is known of it. */
    const struct chip *(*chip)(const struct driver *d, const struct card *card);

    uint64_t granule_bytes; /* the driver rounds allocations up to this */
};

extern const struct driver_ops driver_sim, driver_nvidia;
#endif
