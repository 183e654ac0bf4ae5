/* How the arbiter talks to the simulated card-and-driver process.
 *
 * Two SOCK_SEQPACKET unix sockets, both owned by the card:
 *   card.sock   one struct sim_request, one struct sim_reply per packet, strictly alternating, any number of
 *               connections; SIM_OPEN answers with one SCM_RIGHTS fd. SIM_SUBSCRIBE turns a connection into
 *               a one-way stream of struct sim_event, once all calls of connections that have ended are done.
 *   admin.sock  one line of text in ("cards", "account", "files", "driver", "timeline MINOR SINCE"), one JSON
 *               document out. The account and the timeline are the card's exact ledger: the judge of tests,
 * never read by the arbiter.
 *
 * A SIM_IOCTL of MAP_MEMORY that succeeds answers with one SCM_RIGHTS fd too: what is to take the place of
 * the caller's fd that the outer struct names (channel_abi.h).
 *
 * An open file of the card is named by a 64-bit id, never reused. The fd that SIM_OPEN returns is the read
 * end of a pipe whose write end the card keeps: when the last copy is closed the card sees POLLERR, frees
 * every object made through the file and tells subscribers. Of nvidia-uvm it is a memfd instead, which can be
 * mapped, and the card sees the end of descriptors and mappings by a lock. Its (st_dev, st_ino) is the file's
 * identity. */
#ifndef MGPU_SIM_PROTOCOL_H
#define MGPU_SIM_PROTOCOL_H
#include <stdint.h>

enum { SIM_PAYLOAD_MAX = 96 << 10 }; /* outer struct + parameters: as much as the mediator takes of both */

enum sim_node { SIM_NODE_CTL, SIM_NODE_CARD, SIM_NODE_UVM };

enum sim_op {
    SIM_OPEN = 1,  /* node, minor, tgid -> file, fd */
    SIM_IOCTL = 2, /* file, tgid, cmd, outer, params -> error, outer, params */
    SIM_SUBSCRIBE = 3,
    /* file, payload struct sim_userd_of -> payload uint64_t offset of USERD, read-only fd of its memory */
    SIM_USERD = 4,
    SIM_FILES = 6, /* payload uint64_t ids of files -> payload a byte for each: 0 when it is gone */
    SIM_ENDED = 7, /* payload uint64_t ids of files -> error EBADF when one of them is closed, told or not */
    /* minor -> payload struct sim_registers, read-only fd of them unless they cannot be mapped
       (channel_abi.h) */
    SIM_STATUS = 5,
};

struct sim_userd_of { /* a channel made through `file` */
    uint32_t client, channel;
};

struct sim_request {
    uint32_t op;
    uint32_t node;         /* SIM_OPEN: enum sim_node */
    uint32_t minor;        /* SIM_OPEN: card number, SIM_NODE_CARD only */
    uint32_t cmd;          /* SIM_IOCTL: the ioctl number as the caller gave it */
    uint64_t file;         /* SIM_IOCTL */
    uint64_t aux_file;     /* SIM_IOCTL: file behind an fd inside the outer struct (REGISTER_FD), 0 = none */
    int32_t tgid;          /* the calling process, in the arbiter's pid namespace: RmClient.ProcID */
    uint32_t outer_bytes;  /* SIM_IOCTL: payload = outer struct, then parameters */
    uint32_t params_bytes; /* the pointer inside the outer struct is ignored */
    /* A driver runs in its caller's thread, at its priority. realtime: 1, that is a SCHED_FIFO thread. */
    uint16_t realtime;
    int16_t nice;
    uint8_t payload[SIM_PAYLOAD_MAX]; /* only the used part travels */
};

struct sim_reply {
    int32_t error; /* 0 or an errno: what ioctl() itself would fail with */
    uint32_t outer_bytes, params_bytes;
    uint32_t reread_us; /* SIM_OPEN: see --reread-us */
    uint64_t file;
    uint64_t ino; /* SIM_OPEN: st_ino of the returned fd */
    uint8_t payload[SIM_PAYLOAD_MAX];
};

enum sim_event_kind {
    SIM_EVENT_SUBSCRIBED = 0, /* the first: every file that is gone from here on is told; file = 0 */
    SIM_EVENT_FILE_GONE = 1,
};
struct sim_event {
    uint32_t kind, pad;
    uint64_t file;
};
#endif
