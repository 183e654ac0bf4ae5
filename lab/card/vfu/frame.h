/* vfio-user's messages on a socket: a header of 16 bytes, a body, and descriptors that come with the header.
 * Several messages may lie in the socket at once, and a descriptor belongs to the one whose header brings it:
 * so a header is read by itself. */
#ifndef MGPU_LAB_FRAME_H
#define MGPU_LAB_FRAME_H
#include <stdbool.h>
#include <stdint.h>

enum { FRAME_HEADER_BYTES = 16, FRAME_BODY_MAX = (1 << 20) + 4096, FRAME_FDS = 8 };
enum { FRAME_REPLY = 1, FRAME_NO_REPLY = 0x10, FRAME_ERROR = 0x20 };

struct frame {
    uint16_t id, command;
    uint32_t flags, bytes; /* of the body */
    int fd[FRAME_FDS];
    uint32_t fds;
    uint8_t *body; /* FRAME_BODY_MAX, the reader's own */
};

/* 1: a message; 0: the other end closed between two messages; negative errno, -EPROTO for what is none. */
int frame_read(int socket, struct frame *frame);
/* Takes a descriptor out of it, or -1. */
int frame_take_fd(struct frame *frame, uint32_t index);
void frame_close_fds(struct frame *frame);
/* The answer to it, unless none is wanted. error: a positive errno, or 0. Negative errno. */
int frame_reply(int socket, const struct frame *to, int error, const void *body, uint32_t bytes);
#endif
