#define _GNU_SOURCE
#include "events.h"
#include "base/clock.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

int events_fd;

int64_t now_ms(void)
{
    return (int64_t)(monotonic_ns() / 1000000);
}

void say(const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    fprintf(stderr, "mgpu-holder: %s\n", line);
}

static void control(int how, int fd, enum source source, uint64_t which, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)source << 56 | which};

    if (epoll_ctl(events_fd, how, fd, &ev) < 0)
        say("epoll_ctl: %s", strerror(errno));
}

void watch(int fd, enum source source, uint64_t which, uint32_t events)
{
    control(EPOLL_CTL_ADD, fd, source, which, events);
}

void watch_again(int fd, enum source source, uint64_t which, uint32_t events)
{
    control(EPOLL_CTL_MOD, fd, source, which, events);
}
