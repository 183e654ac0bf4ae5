/* A runtime's message to the holder in pieces, with descriptors at any of them: whatever it is, it is
 * complete at the same byte as in one piece, and no descriptor is left open. */
#include "../../native_sched/holder/intake.h"
#include "choices.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* A program that scans the descriptors of all processes, as mgpud does, has this one for a moment too. */
enum { FDS_MAX = 12, LET_GO_MS = 10000 };

/* Where the text is a whole object; 0: nowhere. Byte by byte, as slowly as it can come. */
static size_t end_of(const uint8_t *text, size_t bytes, bool *overflow)
{
    struct json_end j = {0};
    size_t i;

    for (i = 0; i < bytes && !j.broken; i++)
        if (json_end_feed(&j, (const char *)text + i, 1))
            return i + 1;
    *overflow = j.broken;
    return 0;
}

static void send_piece(int to, const uint8_t *text, size_t bytes, int fd, uint32_t fds)
{
    char room[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
    struct iovec iov = {(void *)(uintptr_t)text, bytes};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *h;

    if (fds) {
        m.msg_control = room;
        m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        h = CMSG_FIRSTHDR(&m);
        *h = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(fds * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        for (uint32_t i = 0; i < fds; i++)
            memcpy(CMSG_DATA(h) + i * sizeof(int), &fd, sizeof(int));
    }
    must(sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes, "the test's own send");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct choices c = {data, data + (bytes < 24 ? bytes : 24)};
    const uint8_t *text = c.end;
    size_t left = bytes - (size_t)(text - data), sent = 0, end;
    bool any_fd = false, overflow = false;
    struct intake in;
    int pair[2], pipes[2], e = 0;
    struct pollfd gone;

    if (left > 16384)
        return 0;
    end = end_of(text, left, &overflow);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0 && pipe(pipes) == 0, "a socket");
    intake_open(&in, pair[1], 0);
    while (sent < left && e == 0) {
        size_t piece = 1 + (size_t)one_byte(&c) * (1 + (size_t)below(&c, 40));
        uint32_t fds = one_in(&c, 3) ? 1 + below(&c, FDS_MAX - 1) : 0;

        if (piece > left - sent)
            piece = left - sent;
        send_piece(pair[0], text + sent, piece, pipes[1], fds);
        any_fd = any_fd || fds;
        sent += piece;
        e = intake_read(&in);
    }
    if (e == 1)
        must(end && sent >= end && in.listener >= 0 && in.bytes == sent && any_fd, "complete without an end");
    if (e == 0)
        must(!overflow && !(end && sent >= end), "it goes on reading after the end");
    if (e < 0)
        must(overflow || (end && sent >= end && !any_fd), "a good message is dropped");
    intake_close(&in);
    close(pipes[1]);
    close(pair[0]);
    gone = (struct pollfd){.fd = pipes[0], .events = POLLIN};
    must(poll(&gone, 1, LET_GO_MS) == 1 && gone.revents & POLLHUP, "a descriptor is left open");
    close(pipes[0]);
    return 0;
}
