/* holder.sock: SOCK_SEQPACKET. A worker says HELLO and is told WELCOME once no other worker lives, or REFUSED. Then
 * listeners come, and HOLDER_ALL after those that there were; later ones follow as they arrive. Native byte order:
 * both ends are one machine. */
#ifndef MGPU_HOLDER_PROTOCOL_H
#define MGPU_HOLDER_PROTOCOL_H
#include <stdint.h>

enum { HOLDER_PROTOCOL = 1 };

enum holder_kind {
    /* One SCM_RIGHTS fd; the runtime's JSON follows the header. From a worker: the holder that it got this from is
     * gone, and this one is to keep it under the id that it had. */
    HOLDER_LISTENER = 1,
    HOLDER_DROP,    /* worker to holder: close this listener, its calls get ENOSYS from now on */
    HOLDER_HELLO,   /* a worker's first message. value: HOLDER_PROTOCOL, id: enum holder_hello */
    HOLDER_WELCOME, /* to a worker: no other lives. value: HOLDER_PROTOCOL, id: enum holder_welcome */
    HOLDER_REFUSED, /* to a worker, which is not served. value: enum holder_refusal, id: a pid, or a version */
    HOLDER_ALL,     /* id: how many listeners were sent since WELCOME; from a worker: how many it gave back */
    HOLDER_ALIVE,   /* worker to holder, about every second: it serves, and its threads turn */
    HOLDER_STATUS,  /* a stranger's first message; answered with struct holder_status, and closed */
};

enum holder_hello {
    HOLDER_TAKE_OVER = 1 << 0, /* end the worker that serves, then serve in its place */
    HOLDER_SERVING = 1 << 1, /* it serves already and lost its holder: listeners come back, then HOLDER_ALL */
};

enum holder_welcome {
    HOLDER_FENCE = 1 << 0, /* whoever has the worker's lock does not come back: it may be ended */
};

enum holder_refusal {
    HOLDER_SERVED = 1,  /* id: pid of the worker that serves */
    HOLDER_BUSY = 2,    /* id: pid of one that is becoming the worker at this moment */
    HOLDER_UNKNOWN = 3, /* id: the protocol that the holder speaks */
};

struct holder_head {
    uint32_t kind, value;
    uint64_t id;
};

struct holder_status {
    struct holder_head head; /* HOLDER_STATUS; value: HOLDER_PROTOCOL, id: how often it has replaced itself */
    uint32_t worker_pid;     /* 0: there is none */
    uint32_t starts_worker;  /* not 0: it starts the worker and not systemd */
    uint32_t listeners;
    uint32_t killed;   /* workers that were ended since they said nothing any more */
    uint32_t starting; /* workers that do not serve yet */
    uint32_t refused;  /* times that it did not replace itself though it was told to */
};
#endif
