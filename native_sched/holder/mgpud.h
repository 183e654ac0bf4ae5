/* The mgpud that is served, and the candidates to follow it: at most one serves at any time. A candidate is
 * served only after the kernel has reported the end of the last thread of the one before. */
#ifndef MGPU_HOLDER_MGPUD_H
#define MGPU_HOLDER_MGPUD_H
#include "table.h"
#include <stdbool.h>
#include <sys/types.h>

/* START_TIMES: the watchdog's time so often is what mgpud may take until it serves. */
enum {
    CANDIDATES_MAX = 16,
    HELLO_TIMEOUT_MS = 5000,
    START_TIMES = 6,
    SILENCE_STEP_MS = 1000,
    CALM_MS = 600000,
    KILLS_COUNTED_MAX = 6
};

/* One process at the other end of holder.sock. */
struct mgpud {
    int fd;    /* -1: it has closed the connection, or there is none */
    int pidfd; /* -1: there is no process */
    pid_t pid;
    bool serves;        /* HOLDER_ALIVE has come once */
    bool gives_back;    /* its own listeners come first */
    bool all_sent;      /* HOLDER_ALL */
    bool behind;        /* something is to be sent again after a while */
    bool doomed;        /* SIGKILL is on its way */
    uint32_t sent;      /* listeners since WELCOME */
    int64_t served_ms;  /* since the first HOLDER_ALIVE */
    int64_t silent_ms;  /* since WELCOME or the last HOLDER_ALIVE, of time in which both could run */
    int64_t starved_ms; /* for which its first thread has waited for a processor, in all */
};

struct candidate {
    int fd; /* -1: free */
    int pidfd;
    pid_t pid;
    int64_t deadline_ms; /* for its hello; -1: it has come */
    uint64_t hello;      /* enum holder_hello */
};

struct mgpuds {
    struct mgpud now;
    struct candidate candidates[CANDIDATES_MAX];
    int next;            /* index of the candidate that waits for the end of `now`; -1: none */
    int64_t watchdog_ms; /* 0: off */
    bool fence;          /* the next welcome has HOLDER_FENCE */
    uint32_t killed, replaced, refused, starting; /* see struct holder_status */
    uint32_t kills_lately; /* by the watchdog, without a mgpud that served for CALM_MS between them */
    bool starts_mgpud;
    void (*ready)(pid_t pid); /* each time a mgpud serves */
};

extern struct mgpuds mgpuds;

void mgpuds_init(void);
/* Watches the connections that are known already. */
void mgpuds_watch(void);
void mgpuds_accept(int listening);
void candidate_read(unsigned int which);
/* events: of epoll, on its connection. */
void mgpud_event(uint32_t events);
void mgpud_end(void);
/* There may be listeners that mgpud has not been sent. */
void mgpud_send(void);
bool mgpud_lives(void);

/* What is due by time; returns the ms until it is due again, -1 for never. */
int64_t mgpuds_poll(int64_t now_ms);
#endif
