#include "conf.h"

#include "base/scoped.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX_BYTES = 32 * 1024 };

static const struct key {
    const char *name;
    size_t offset;
} keys[] = {
    {"runtime", offsetof(struct conf, runtime)},
    {"socket", offsetof(struct conf, socket)},
    {"seccomp_socket", offsetof(struct conf, seccomp_socket)},
    {"hook", offsetof(struct conf, hook)},
    {"python", offsetof(struct conf, python)},
    {"main", offsetof(struct conf, main)},
};
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r");
}

/* Reads `"text"`, with \" and \\ as the only escapes, into value; NULL if that is not what stands at `at`. */
static const char *read_string(const char *at, char value[PATH_MAX])
{
    size_t bytes = 0;

    if (*at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        if (*at == '\\' && *++at != '"' && *at != '\\')
            return NULL;
        if (!*at || bytes + 1 == PATH_MAX)
            return NULL;
        value[bytes++] = *at;
    }
    value[bytes] = '\0';
    return at + 1;
}

static const struct key *find_key(const char *name, size_t bytes)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].name) == bytes && memcmp(keys[i].name, name, bytes) == 0)
            return &keys[i];
    return NULL;
}

static int refuse_line(struct error *why, const char *path, unsigned int number, const char *what)
{
    return fail(why, EINVAL,
                "each line is key = \"value\"; keys: runtime, socket, seccomp_socket, hook, python, main",
                "%s line %u: %s", path, number, what);
}

static int read_line(const char *path, unsigned int number, const char *line, struct conf *conf,
                     struct error *why)
{
    const char *at = skip_blanks(line);
    const struct key *key;
    char *value, what[96];
    size_t bytes;

    if (!*at || *at == '#')
        return 0;
    bytes = strcspn(at, " \t\r=");
    key = find_key(at, bytes);
    if (!key) {
        snprintf(what, sizeof(what), "unknown key \"%.*s\"", (int)(bytes < 60 ? bytes : 60), at);
        return refuse_line(why, path, number, what);
    }
    value = (char *)conf + key->offset;
    if (*value) {
        snprintf(what, sizeof(what), "\"%s\" is given twice", key->name);
        return refuse_line(why, path, number, what);
    }
    at = skip_blanks(at + bytes);
    at = *at == '=' ? read_string(skip_blanks(at + 1), value) : NULL;
    if (at)
        at = skip_blanks(at);
    if (!at || (*at && *at != '#')) {
        snprintf(what, sizeof(what), "\"%s\" has no value in double quotes", key->name);
        return refuse_line(why, path, number, what);
    }
    if (*value != '/' && (key->offset != offsetof(struct conf, runtime) || !*value || strchr(value, '/'))) {
        snprintf(what, sizeof(what), "\"%s\" is not an absolute path", key->name);
        return refuse_line(why, path, number, what);
    }
    return 0;
}

/* Reads a whole file into text as a string; its length, or a negative errno. */
static ssize_t read_file(const char *path, char *text, size_t capacity)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t bytes = 0;

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t n = read(fd, text + bytes, capacity - bytes);

        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        bytes += (size_t)n;
        if (bytes == capacity)
            return -EFBIG;
    }
    text[bytes] = '\0';
    return (ssize_t)bytes;
}

int conf_read(const char *path, struct conf *conf, struct error *why)
{
    static char text[FILE_MAX_BYTES];
    ssize_t bytes = read_file(path, text, sizeof(text));
    unsigned int number = 1;

    if (bytes < 0)
        return fail(why, (int)-bytes, "install mgpu again, or give --mgpu-config=FILE",
                    "mgpu-runtime cannot read its config %s: %s", path, strerror((int)-bytes));
    if (memchr(text, '\0', (size_t)bytes))
        return refuse_line(why, path, 1, "not a text file");
    memset(conf, 0, sizeof(*conf));
    for (char *line = text, *next; line; line = next, number++) {
        int error;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        error = read_line(path, number, line, conf, why);
        if (error)
            return error;
    }
    if (!*conf->runtime)
        strcpy(conf->runtime, "runc");
    return 0;
}
