#define _GNU_SOURCE
#include "sockets.h"
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOK_MS = 1000 };

bool sockets_lock(const char *path)
{
    char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + sizeof(".lock")], owner[16] = "";
    int fd;

    snprintf(name, sizeof(name), "%s.lock", path);
    if ((fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
        say("%s: %s", name, strerror(errno));
        return false;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (read(fd, owner, sizeof(owner) - 1) < 1)
            strcpy(owner, "unknown");
        say("another mgpu-holder (pid %.*s) serves %s; stop that one, or give this one another folder",
            (int)strcspn(owner, "\n"), owner, path);
        close(fd);
        return false;
    }
    if (ftruncate(fd, 0) == 0)
        dprintf(fd, "%d\n", (int)getpid());
    return true; /* the descriptor stays open */
}

void socket_note(struct own_socket *s)
{
    struct stat at;

    if (stat(s->path, &at) == 0)
        s->at = (struct socket_place){at.st_dev, at.st_ino, at.st_mtim};
}

static bool is_there(const struct own_socket *s)
{
    struct stat at;

    return stat(s->path, &at) == 0 && S_ISSOCK(at.st_mode) && at.st_dev == s->at.device &&
           at.st_ino == s->at.inode && at.st_mtim.tv_sec == s->at.made.tv_sec &&
           at.st_mtim.tv_nsec == s->at.made.tv_nsec;
}

/* Its descriptor, or a negative errno. */
static int bound(const struct own_socket *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, s->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e;

    if (fd < 0)
        return -errno;
    strcpy(at.sun_path, s->path);
    unlink(s->path);
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && chmod(s->path, 0600) == 0 &&
        listen(fd, 128) == 0)
        return fd;
    e = -errno;
    close(fd);
    return e;
}

void socket_serve(struct own_socket *s)
{
    if (strlen(s->path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        say("%s: path too long for a socket (107 bytes)", s->path);
        exit(1);
    }
    if ((*s->fd = bound(s)) < 0) {
        say("%s: %s", s->path, strerror(-*s->fd));
        exit(1);
    }
}

static void serve_anew(struct own_socket *s)
{
    int fd = bound(s);

    if (fd < 0) {
        say("%s is not this holder's any more, and cannot be served anew: %s", s->path, strerror(-fd));
        return;
    }
    say("%s was not this holder's any more, and is served anew", s->path);
    close(*s->fd); /* which takes it out of the watch */
    *s->fd = fd;
    socket_note(s);
    watch(fd, s->source, 0, EPOLLIN);
    if (s->source == FROM_RUNTIMES)
        store_keep_socket(fd);
}

int64_t sockets_poll(struct own_socket *s, size_t n, int64_t now)
{
    static int64_t due_ms;

    if (now < due_ms)
        return due_ms - now;
    due_ms = now + LOOK_MS;
    for (size_t i = 0; i < n; i++)
        if (!is_there(&s[i]))
            serve_anew(&s[i]);
    return LOOK_MS;
}
