/* Descriptors that the service manager hands to a holder that begins. */
#define _GNU_SOURCE
#include "events.h"
#include "store.h"
#include "store_name.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* sd_listen_fds(3). */
enum { FDS_START = 3, STORED_MAX = 2 * HELD_MAX };

struct stored {
    uint64_t id;
    int fd;
    bool is_text; /* the runtime's message; else the listener itself */
};

static bool is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && seals & F_SEAL_WRITE;
}

/* How many descriptors came with this process. */
static int count_of_fds(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

    return pid && count && strtol(pid, NULL, 10) == getpid() ? (int)strtol(count, NULL, 10) : 0;
}

static bool is_bound_to(int fd, const char *path)
{
    struct sockaddr_un at = {0};
    socklen_t n = sizeof(at) - 1;
    struct stat is;

    return getsockname(fd, (struct sockaddr *)&at, &n) == 0 && at.sun_family == AF_UNIX &&
           !strcmp(at.sun_path, path) && lstat(path, &is) == 0 && S_ISSOCK(is.st_mode);
}

static bool take_listener(const struct stored *listener, const struct stored *text)
{
    struct stat is;
    struct held *h;
    char *copy;

    if (!text || held_find(listener->id) || fstat(text->fd, &is) < 0 || is.st_size > TEXT_MAX ||
        !(copy = malloc((size_t)is.st_size + 1)))
        return false;
    if (pread(text->fd, copy, (size_t)is.st_size, 0) != is.st_size ||
        !(h = held_add(listener->id, listener->fd, copy, (size_t)is.st_size))) {
        free(copy);
        return false;
    }
    h->stored = true;
    return true;
}

static const struct stored *text_of(uint64_t id, const struct stored *all, size_t count)
{
    for (const struct stored *s = all; s < all + count; s++)
        if (s->is_text && s->id == id)
            return s;
    return NULL;
}

static void take_listeners(const struct stored *all, size_t count)
{
    for (const struct stored *s = all; s < all + count; s++)
        if (!s->is_text && !take_listener(s, text_of(s->id, all, count)))
            close(s->fd);
    for (const struct stored *s = all; s < all + count; s++) {
        char name[STORE_NAME_MAX];

        store_name(name, s->id);
        if (!held_find(s->id))
            (void)store_forget(name); /* It would come again, and be closed again. */
        if (s->is_text)
            close(s->fd);
    }
}

int store_take_back(const char *path)
{
    static struct stored all[STORED_MAX];
    const char *listed = getenv("LISTEN_FDNAMES");
    char *names = strdup(listed ? listed : ""), *rest = names, *name;
    int socket = -1, fds = count_of_fds();
    size_t count = 0;

    for (int fd = FDS_START; fd < FDS_START + fds; fd++) {
        uint64_t id;

        fcntl(fd, F_SETFD, FD_CLOEXEC);
        name = rest ? strsep(&rest, ":") : NULL;
        if (!name)
            close(fd);
        else if (!strcmp(name, STORE_SOCKET) && socket < 0 && is_bound_to(fd, path))
            socket = fd;
        else if ((id = store_id(name)) && count < STORED_MAX)
            all[count++] = (struct stored){id, fd, is_sealed(fd)};
        else {
            close(fd);
            (void)store_forget(name); /* It would come again, and be closed again. */
        }
    }
    take_listeners(all, count);
    free(names);
    if (fds > 0)
        say("the service manager had %u listeners", held_count());
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return socket;
}
