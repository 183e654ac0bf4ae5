#include "argv.h"

#include <stddef.h>
#include <string.h>

static const char *const with_value[] = {"root", "log",      "log-format",     "log-level",
                                         "criu", "rootless", "cgroup-manager", NULL};
static const char *const without_value[] = {"debug", "systemd-cgroup", "help", "h", "?", "version", "v",
                                            "V",     "usage",          NULL};

static bool listed(const char *const *names, const char *name, size_t bytes)
{
    for (; *names; names++)
        if (strlen(*names) == bytes && memcmp(*names, name, bytes) == 0)
            return true;
    return false;
}

/* precreate is no runtime's verb: podman's hook of that name, which hands over a spec instead of a bundle. */
static bool makes_a_container(const char *word)
{
    return strcmp(word, "create") == 0 || strcmp(word, "run") == 0 || strcmp(word, "restore") == 0 ||
           strcmp(word, "precreate") == 0;
}

/* Go's flag package takes -x and --x alike, and the value as the next argument or after "=". */
struct invocation argv_read(int argc, char *const *argv)
{
    struct invocation call = {.verb = argc};

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value;
        size_t bytes;

        if (name[0] != '-' || !name[1]) {
            call.verb = i;
            break;
        }
        if (strcmp(name, "--") == 0) {
            call.verb = i + 1 < argc ? i + 1 : argc;
            break;
        }
        name += name[1] == '-' ? 2 : 1;
        bytes = strcspn(name, "=");
        value = name[bytes] ? name + bytes + 1 : NULL;
        if (listed(with_value, name, bytes)) {
            if (!value && i + 1 < argc)
                value = argv[++i];
            if (bytes == 3 && memcmp(name, "log", 3) == 0)
                call.log = value;
        } else if (!value && !listed(without_value, name, bytes) && i + 2 < argc &&
                   !makes_a_container(argv[i + 1]) && makes_a_container(argv[i + 2])) {
            /* An option of a runtime newer than this list, with its value: a create taken for another verb
             * would start a container that was not looked at. */
            i++;
        }
    }
    return call;
}

bool argv_checkpoints(char *const *argv, const struct invocation *call)
{
    return strcmp(argv[call->verb], "checkpoint") == 0;
}

bool argv_is_ours(int argc, char *const *argv, const struct invocation *call)
{
    const char *next;

    if (call->verb >= argc || (!makes_a_container(argv[call->verb]) && !argv_checkpoints(argv, call)))
        return false;
    next = call->verb + 1 < argc ? argv[call->verb + 1] : "";
    /* Only right after the verb: further on it might be the value of another option. */
    return strcmp(next, "--help") != 0 && strcmp(next, "-help") != 0 && strcmp(next, "-h") != 0;
}
