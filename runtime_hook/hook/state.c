#include "state.h"
#include "../../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static const char hint[] = "mgpu-hook is for a container runtime to call, with the OCI state on stdin";

int state_read(int fd, char *text, size_t capacity, unsigned int timeout_s, struct slice *state,
               struct error *why)
{
    long deadline_ms = (long)(monotonic_ns() / 1000000) + (long)timeout_s * 1000;
    size_t bytes = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        long left_ms = deadline_ms - (long)(monotonic_ns() / 1000000);
        ssize_t n;

        if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) == 0)
            return fail(why, ETIMEDOUT, hint, "the container's state did not end within %u s", timeout_s);
        n = read(fd, text + bytes, capacity - bytes);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return fail(why, errno, hint, "the container's state cannot be read: %s", strerror(errno));
        if (n == 0)
            break;
        bytes += (size_t)n;
        if (bytes == capacity)
            return fail(why, EFBIG, hint, "the container's state has %zu bytes or more", capacity);
    }
    *state = (struct slice){text, bytes};
    if (!json_is_object(*state))
        return fail(why, EBADMSG, hint, "the container's state is not a JSON object (%zu bytes)", bytes);
    return 0;
}
