/* The card's two sockets. */
#ifndef MGPU_SIM_SERVE_H
#define MGPU_SIM_SERVE_H
#include "rm.h"

/* Runs for ever on one connection, which it closes at the end; a thread each. */
typedef void (*serve_fn)(struct rm *rm, int connection);
void serve_card(struct rm *rm, int connection);
void serve_admin(struct rm *rm, int connection);

/* Accepts for ever, a thread per connection. */
struct listener {
    struct rm *rm;
    serve_fn serve;
    int fd;
};
void *listener_run(void *listener);
#endif
