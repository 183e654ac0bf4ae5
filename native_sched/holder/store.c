#define _GNU_SOURCE
#include "store.h"
#include "base/scoped.h"
#include "base/write_whole.h"
#include "events.h"
#include "manager.h"
#include "store_name.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t dropped[HELD_MAX];
static size_t dropped_count;
static int64_t again_ms = -1;
static bool unreachable;

/* A memfd that never changes again, or a negative errno. */
static int sealed_text(const struct held *h)
{
    int fd = memfd_create("mgpu-listener", MFD_CLOEXEC | MFD_ALLOW_SEALING), e;

    if (fd < 0)
        return -errno;
    e = write_whole(fd, h->text, h->text_bytes);
    if (e == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        e = -errno;
    if (e == 0)
        return fd;
    close(fd);
    return e;
}

static int keep(const char *name, const int *fds, size_t count)
{
    char lines[64 + STORE_NAME_MAX];

    /* A manager that watches for a listener's end would be woken by each call that arrives on it. */
    snprintf(lines, sizeof(lines), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
    return manager_tell(lines, fds, count);
}

static int keep_listener(struct held *h)
{
    scoped_fd int text = sealed_text(h);
    char name[STORE_NAME_MAX];
    int e;

    if (text < 0)
        return text;
    store_name(name, h->id);
    e = keep(name, (int[]){h->fd, text}, 2);
    h->stored = e == 0;
    return e;
}

static int forget_listener(uint64_t id)
{
    char name[STORE_NAME_MAX];

    store_name(name, id);
    return store_forget(name);
}

static int tell_what_is_left(void)
{
    int e = manager_exists() ? 0 : -ENOTCONN;

    while (e == 0 && dropped_count && (e = forget_listener(dropped[dropped_count - 1])) == 0)
        dropped_count--;
    for (struct held *h = held; e == 0 && h < held + HELD_MAX; h++)
        if (h->id && !h->stored)
            e = keep_listener(h);
    return e;
}

void store_tell(void)
{
    int e = tell_what_is_left();

    again_ms = -1;
    if (e == 0 || e == -ENOTCONN) {
        unreachable = false;
        return;
    }
    again_ms = now_ms() + (e == -EAGAIN ? STORE_AGAIN_MS : STORE_LOST_AGAIN_MS);
    if (e != -EAGAIN && !unreachable)
        say("the service manager stores no descriptors: %s", strerror(-e));
    unreachable = e != -EAGAIN;
}

int64_t store_poll(int64_t now)
{
    if (again_ms >= 0 && again_ms <= now)
        store_tell();
    return again_ms < 0 ? -1 : again_ms > now ? again_ms - now : 0;
}

void store_drop(struct held *h)
{
    /* One too many stays in the store: the next holder gets it, and it is dropped again. */
    if (h->stored && dropped_count < HELD_MAX)
        dropped[dropped_count++] = h->id;
    held_drop(h);
    store_tell();
}

void store_keep_socket(int fd)
{
    store_drop_socket();
    (void)keep(STORE_SOCKET, &fd, 1); /* It is no more than a start that fails. */
}

void store_drop_socket(void)
{
    (void)store_forget(STORE_SOCKET); /* The next holder finds that its path is gone. */
}
