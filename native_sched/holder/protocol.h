/* holder.sock: SOCK_SEQPACKET. mgpud sends HELLO and receives WELCOME once no other mgpud lives, or REFUSED.
 * Then the listeners follow, HOLDER_ALL after those that existed, and later ones as they arrive. Native byte
 * order: both ends are on one machine. */
#ifndef MGPU_HOLDER_PROTOCOL_H
#define MGPU_HOLDER_PROTOCOL_H
#include <stdint.h>

enum { HOLDER_PROTOCOL = 1 };

enum holder_kind {
    /* One SCM_RIGHTS fd; the runtime's JSON follows the header. From mgpud: the holder that sent it is gone,
       and this one keeps it under the same id. */
    HOLDER_LISTENER = 1,
    HOLDER_DROP,    /* from mgpud: close this listener, its calls get ENOSYS from now on */
    HOLDER_HELLO,   /* mgpud's first message. value: HOLDER_PROTOCOL, id: enum holder_hello */
    HOLDER_WELCOME, /* to mgpud: no other lives. value: HOLDER_PROTOCOL, id: enum holder_welcome */
    /* to an mgpud that is not served. value: enum holder_refusal, id: a pid, or a version */
    HOLDER_REFUSED,
    HOLDER_ALL,    /* id: how many listeners were sent since WELCOME; from mgpud: how many it gave back */
    HOLDER_ALIVE,  /* from mgpud, about every second: it serves, and its threads turn */
    HOLDER_STATUS, /* an unknown peer's first message; answered with struct holder_status, and closed */
};

enum holder_hello {
    HOLDER_TAKE_OVER = 1 << 0, /* end the mgpud that serves, then serve in its place */
    HOLDER_SERVING = 1 << 1, /* it serves already and lost its holder: listeners come back, then HOLDER_ALL */
};

enum holder_welcome {
    HOLDER_FENCE = 1 << 0, /* the process that holds mgpud's lock does not come back: it may be ended */
};

enum holder_refusal {
    HOLDER_SERVED = 1,  /* id: pid of the mgpud that serves */
    HOLDER_BUSY = 2,    /* id: pid of one that is about to serve */
    HOLDER_UNKNOWN = 3, /* id: the protocol that the holder speaks */
};

struct holder_head {
    uint32_t kind, value;
    uint64_t id;
};

struct holder_status {
    struct holder_head head; /* HOLDER_STATUS; value: HOLDER_PROTOCOL, id: how often it has replaced itself */
    uint32_t mgpud_pid;      /* 0: there is none */
    uint32_t starts_mgpud;   /* not 0: the holder starts mgpud, not systemd */
    uint32_t listeners;
    uint32_t killed;   /* mgpuds that were killed because they stopped sending HOLDER_ALIVE */
    uint32_t starting; /* mgpuds that do not serve yet */
    uint32_t refused;  /* times that it was asked to replace itself and did not */
};
#endif
