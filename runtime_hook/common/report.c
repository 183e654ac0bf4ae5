#include "report.h"

#include "base/scoped.h"
#include "base/write_whole.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PREFIX     "mgpu: "
#define PODMAN_LOG "/oci-log"

/* The longest line is all of message and hint, each byte of it a control character. */
enum { LINE_BYTES = 4 * sizeof(struct error) + 16, LOG_BYTES = 2 * LINE_BYTES + 80 };

int fail(struct error *why, int error, const char *hint, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why->message, sizeof(why->message), format, arguments);
    va_end(arguments);
    snprintf(why->hint, sizeof(why->hint), "%s", hint);
    return -error;
}

/* Appends text with its control characters escaped; returns the new length. */
static size_t append_printable(char *line, size_t bytes, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20 || c == 0x7f)
            bytes += (size_t)sprintf(line + bytes, "\\x%02x", c);
        else
            line[bytes++] = (char)c;
    }
    line[bytes] = '\0';
    return bytes;
}

static size_t compose(char *line, const struct error *why)
{
    size_t bytes = append_printable(line, 0, PREFIX);

    bytes = append_printable(line, bytes, why->message);
    bytes = append_printable(line, bytes, "; ");
    return append_printable(line, bytes, why->hint);
}

/* Whether both are the same file, as when runc is told to log to /dev/stderr. */
static bool is_stderr(int fd)
{
    struct stat log, standard;

    return fstat(fd, &log) == 0 && fstat(STDERR_FILENO, &standard) == 0 && log.st_dev == standard.st_dev &&
           log.st_ino == standard.st_ino;
}

/* podman puts the runtime's name before what its log says: "mgpu: mgpu: " would come of it. */
static const char *for_engine(const char *path, const char *line)
{
    const char *name = strrchr(path, '/');

    return name && strcmp(name, PODMAN_LOG) == 0 ? line + strlen(PREFIX) : line;
}

static void append_to_log(const char *path, const char *line)
{
    scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    char record[LOG_BYTES];
    size_t bytes = 0;
    time_t now = time(NULL);
    struct tm utc;

    if (fd < 0 || is_stderr(fd))
        return;
    bytes += (size_t)sprintf(record, "{\"level\":\"error\",\"msg\":\"");
    for (line = for_engine(path, line); *line; line++) {
        if (*line == '"' || *line == '\\')
            record[bytes++] = '\\';
        record[bytes++] = *line;
    }
    gmtime_r(&now, &utc);
    bytes += strftime(record + bytes, sizeof(record) - bytes, "\",\"time\":\"%Y-%m-%dT%H:%M:%SZ\"}\n", &utc);
    write_whole(fd, record, bytes);
}

void report_line(const struct error *why, const char *path)
{
    scoped_fd int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    char line[LINE_BYTES];
    size_t bytes = compose(line, why);

    if (fd < 0 || is_stderr(fd))
        return;
    line[bytes] = '\n';
    write_whole(fd, line, bytes + 1);
}

void report(const struct error *why, const char *log)
{
    char line[LINE_BYTES];
    size_t bytes = compose(line, why);

    if (log && *log)
        append_to_log(log, line);
    line[bytes] = '\n';
    write_whole(STDERR_FILENO, line, bytes + 1);
}
