/* The holder's sockets by their paths, and the lock beside them, which every program that serves there takes
 * before it binds one. */
#ifndef MGPU_HOLDER_SOCKETS_H
#define MGPU_HOLDER_SOCKETS_H
#include "events.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* What lies at a path. File systems give an inode's number to the next file at once. */
struct socket_place {
    dev_t device;
    ino_t inode;
    struct timespec made;
};

struct own_socket {
    const char *path;
    int type, *fd;
    enum source source;
    struct socket_place at;
};

/* PATH.lock, until the holder ends. False, and a line, where another process has it. */
bool sockets_lock(const char *path);
/* Takes the path over from an earlier holder; ends the program, with a line, where that fails. The caller
 * notes it. */
void socket_serve(struct own_socket *s);
/* Notes that the file at the path now is the socket's own. */
void socket_note(struct own_socket *s);
/* One whose path was removed, or was taken by another file, is served anew, and watched: a line each. Returns
 * the ms to the next look. */
int64_t sockets_poll(struct own_socket *s, size_t n, int64_t now_ms);
#endif
