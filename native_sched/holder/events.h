/* The events that the holder's one thread waits for. */
#ifndef MGPU_HOLDER_EVENTS_H
#define MGPU_HOLDER_EVENTS_H
#include <stdint.h>

enum source {
    FROM_SIGNAL,
    FROM_RUNTIMES,
    FROM_INTAKE,    /* which: index */
    FROM_MGPUDS,    /* the listening socket */
    FROM_CANDIDATE, /* which: index */
    FROM_MGPUD,     /* its connection */
    FROM_MGPUD_END, /* its pidfd */
    FROM_CHILD,     /* a pidfd; which: index */
    FROM_STANDBY,   /* the pidfd of the standby mgpud */
    FROM_TRIAL,     /* the pidfd of the next holder, on trial */
};

/* Of epoll, from main() on. */
extern int events_fd;

/* events: of epoll. watch_again changes those of an fd that is watched already. */
void watch(int fd, enum source source, uint64_t which, uint32_t events);
void watch_again(int fd, enum source source, uint64_t which, uint32_t events);

/* CLOCK_MONOTONIC. */
int64_t now_ms(void);

/* One line on stderr. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The sooner of two waits in ms, of which -1 means for ever. */
static inline int64_t sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}
#endif
