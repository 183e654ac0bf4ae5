/* The one road to a GPU driver. The mediator and the scheduler run the same code on every driver; what
 * differs is behind this table. Functions return 0 or a positive value, or a negative errno. */
#ifndef MGPU_DRIVER_H
#define MGPU_DRIVER_H
#include "../boundary/files.h"

struct driver;
struct caller;
struct rm_table;
struct rm_pid_info;

struct driver_call {
    const struct open_file *file;
    const struct open_file *aux_file; /* the file behind an fd inside the outer struct, or NULL */
    const struct rm_table *rm;        /* sizes of the running driver's version */
    pid_t tgid;                       /* whose client it is, where the call makes one */
    uint32_t cmd;
    uint8_t *outer, *params; /* in and out; the params pointer inside outer is the driver's to set */
    uint32_t outer_bytes, params_bytes;
    uint32_t params_max; /* as_caller(): room behind params */
    uint64_t params_at;  /* as_caller(), out: where in the caller they are */
    bool apart; /* what ends with it may have descriptors of processes: none of ours are to be in its reach */
    int reply_fd; /* out: a file that is to take the place of the caller's fd in the outer struct, or -1 */
};

/* Where a channel keeps its USERD, as its allocation said: offset inside a memory object of the same client. */
struct userd_place {
    const struct card *card; /* that the channel is on */
    uint32_t memory;
    uint64_t offset;
};

/* An object of RM: handles mean something only through the open file that its client was made on. */
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
    void *owner; /* the driver's own */
};

/* Groups are numbered among those that may be on the same engines. */
struct engine_status {
    uint32_t tsg_id;  /* the channel group on the engine */
    uint64_t engines; /* that it may have been made for, a bit each */
    bool busy;        /* it executes, or is being switched */
};
enum { ENGINES_MAX = 32 };

/* The bit of an engine, by its number in a channel group's parameters; 0: nobody looks at it. */
static inline uint64_t engine_bit(uint32_t engine_type)
{
    return engine_type < 64 ? 1ull << engine_type : 0;
}

struct driver_ops {
    const char *name;
    /* dir: where the driver's own sockets are (sim), unused otherwise. */
    int (*open)(const char *dir, struct files *files, struct driver **out);
    /* Nobody asks it anything any more, next_gone() included. */
    void (*close)(struct driver *d);

    /* Which driver file is behind fd `fd` of the notified caller? Fills `out` with a file of tenant `t`.
     * -ENOTTY: no driver file; -EPERM: one, but not this tenant's. */
    int (*identify)(struct driver *d, struct caller *c, struct tenant *t, int fd, struct open_file *out);

    /* A file that an earlier worker knew, whose calls have ended with it. client: a root client that was made through it, 0:
     * none is known. holds: memory may be charged that it alone keeps. 0: it lives, or it holds and may be where nobody sees it;
     * it is known again by its id; its end will be told by next_gone(). -EBADF: it is gone, or is not to be found any more. */
    int (*adopt)(struct driver *d, const struct open_file *file, uint32_t client, bool holds);

    /* The ioctl on that open file, with copied arguments. An RM failure is 0 here and a status in outer.
     * -EBADF: the file is gone. -EAGAIN: it lives, and at present no process can be found that holds it by a descriptor:
     * nothing was done. -EINPROGRESS: not done, must_continue() says why. */
    int (*execute)(struct driver *d, struct driver_call *call);

    /* True for a call that only the caller itself can make (the driver looks at the calling process, or the arguments
     * name descriptors or memory of it): it is let through with CONTINUE, and audited. NULL: there is none. */
    bool (*must_continue)(const struct driver_call *call);

    /* Where no kernel would take the call up after CONTINUE: makes it as the caller would, from what is in the caller's
     * memory by then, and leaves in `call` what is to be written there. NULL: the kernel does it. */
    int (*as_caller)(struct driver *d, struct caller *c, uint64_t outer_at, struct driver_call *call);

    /* One of the cards there are, before any tenant: what engine_status() needs of it. It stays where it is. NULL: nothing. */
    void (*add_card)(struct driver *d, const struct card *card);

    /* RM's own number of the card, by which programs ask for it; a negative errno. NULL: as it was said when the card was
     * added. */
    int (*device_instance)(struct driver *d, uint32_t minor);

    /* What the driver takes by itself for one more channel group on that card, found by making some: of the graphics engine
     * or of a copy engine. NULL: it is known by other means. */
    int (*context_bytes)(struct driver *d, const struct rm_table *rm, uint32_t minor, bool copies,
                         uint64_t *out);

    /* What the driver takes of the card by itself for an object of that class, whose parameters these are, besides what it says
     * that it has given, and the context_bytes() of a group. UINT64_MAX: more than is to be had. NULL: nothing. */
    uint64_t (*own_bytes)(uint32_t class_id, const void *params);

    /* Bytes of managed memory between two addresses, of the memory whose map (/proc/TID/maps) is open as `map`: a range that
     * mmap() of nvidia-uvm has made. A negative errno: the thread is gone, or its memory. NULL: there is no such memory. */
    int64_t (*managed)(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to);
    /* 1: the file of nvidia-uvm was initialised with exactly these flags, and its cards reach no other memory of the process;
     * 0: in another way; -ENODATA: not at all yet; -EBADF: it is gone; -EAGAIN: nobody can ask it any more, since it lives where
     * nobody sees it: what it said until then is noted; another error: it cannot be asked now. */
    int (*initialized)(struct driver *d, const struct open_file *file, uint64_t flags);

    /* What the driver itself counts to the processes in `info` on that card, by the control GET_PID_INFO: the audit.
     * -ENXIO: the card is lost. */
    int (*pid_info)(struct driver *d, uint32_t minor, struct rm_pid_info *info);

    /* Blocks until a file of the driver is gone (its last holder closed it): its id, or a negative errno. */
    int64_t (*next_gone)(struct driver *d);
    /* Some of these files have ended, or are closed by their processes and end as soon as that is certain, and next_gone() has yet
     * to tell of them. NULL: it tells at once. */
    bool (*any_ended)(struct driver *d, const struct open_file *file, uint32_t files);
    /* The tenant has no process any more: of its files those have ended too that could not be found. NULL: all can be. */
    void (*tenant_ended)(struct driver *d, const struct tenant *t);
    /* At this moment no file of nvidia-uvm is open on the machine but those that are known and can be asked. NULL, false: that
     * cannot be told, or is not so. */
    bool (*sees_all_uvm)(struct driver *d);
    /* From now on next_gone() fails, whoever waits in it included. */
    void (*stop_watch)(struct driver *d);

    /* Activity. Reading costs no call to the driver. An error of userd_map() may be RM's status (group_control.h). */
    int (*userd_map)(struct driver *d, const struct rm_target *channel, struct userd *out);
    void (*userd_unmap)(struct userd *userd);
    /* Fills out for each engine of the card and returns how many; 0: the card has no status that can be read; a negative
     * errno: it has one, and nothing can be told at present. */
    int (*engine_status)(struct driver *d, const struct card *card, struct engine_status *out);

    uint64_t granule_bytes; /* the driver rounds allocations up to this */
};

extern const struct driver_ops driver_sim, driver_nvidia;
#endif
