#define _GNU_SOURCE
#include "filter.h"

#include "base/scoped.h"
#include "base/write_whole.h"
#include "prepare.h"
#include <stdio.h>
#include <sys/mman.h>
#include <syslog.h>

enum { PIECE_BYTES = 16 * 1024 };

/* Moves standard input into memory, so that it can be read twice; false, with nothing read, without memory.
 * A truncated spec counts as missing; the Python fallback reports it. */
static bool keep_input(void)
{
    scoped_fd int fd = memfd_create("spec", MFD_CLOEXEC);
    char piece[PIECE_BYTES];
    ssize_t n;

    if (fd < 0)
        return false;
    while ((n = read(STDIN_FILENO, piece, sizeof(piece))) > 0)
        if (write_whole(fd, piece, (size_t)n) < 0)
            break;
    return lseek(fd, 0, SEEK_SET) == 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO;
}

/* podman drops what its hooks say. Its own standard error may be a socket, which cannot be opened, or that of
 * a service. */
static void tell(pid_t podman, const struct error *why)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/2", podman);
    report_line(why, path);
    openlog("mgpu", 0, LOG_DAEMON);
    syslog(LOG_ERR, "%s; %s", why->message, why->hint);
}

int filter(char *const *words, const struct conf *conf, const char *log)
{
    static char spec[PREPARE_SPEC_MAX_BYTES];
    static struct preparation made;
    /* Its process goes on to start the container. */
    pid_t podman = getppid();
    struct error why;
    struct slice out;
    ssize_t bytes;

    if (!keep_input())
        return -1;
    bytes = pread(STDIN_FILENO, spec, sizeof(spec), 0);
    if (bytes <= 0 || bytes == (ssize_t)sizeof(spec))
        return -1;
    out = made.original = (struct slice){spec, (size_t)bytes};
    switch (prepare_given(words, conf, podman, &made, &why)) {
    case PREPARE_WRITE:
        out = made.text;
        /* fallthrough */
    case PREPARE_PASS:
        return write_whole(STDOUT_FILENO, out.text, out.bytes) < 0;
    case PREPARE_REFUSE:
        tell(podman, &why);
        report(&why, log);
        return 1;
    default:
        return -1;
    }
}
