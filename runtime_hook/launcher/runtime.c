#include "runtime.h"

#include "base/scoped.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FALLBACK_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* The kernel reads so much of a script's first line. */
enum { SHEBANG_MAX_BYTES = 256 };

static bool is_own_binary(const char *path)
{
    struct stat own, other;

    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

static bool leads_back(const char *path)
{
    scoped_fd int fd = -1;
    char line[SHEBANG_MAX_BYTES + 1], *interpreter;
    ssize_t bytes;

    if (is_own_binary(path))
        return true;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    bytes = fd < 0 ? 0 : read(fd, line, SHEBANG_MAX_BYTES);
    if (bytes < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[bytes] = '\0';
    interpreter = line + 2 + strspn(line + 2, " \t");
    interpreter[strcspn(interpreter, " \t\n")] = '\0';
    return is_own_binary(interpreter);
}

static bool is_program(const char *path)
{
    struct stat file;

    return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0;
}

static int search(const char *name, char found[PATH_MAX], bool *passed_over)
{
    const char *path = getenv("PATH");

    if (!path || !*path)
        path = FALLBACK_PATH;
    for (;;) {
        size_t bytes = strcspn(path, ":");

        /* A relative entry would make the runtime depend on the bundle that is the current directory. */
        if (path[0] == '/' && bytes + 1 + strlen(name) < PATH_MAX) {
            snprintf(found, PATH_MAX, "%.*s/%s", (int)bytes, path, name);
            if (is_program(found)) {
                if (!leads_back(found))
                    return 0;
                *passed_over = true;
            }
        }
        if (!path[bytes])
            return -ENOENT;
        path += bytes + 1;
    }
}

int runtime_find(const char *name, const char *conf_path, char found[PATH_MAX], struct error *why)
{
    bool passed_over = false;
    char hint[PATH_MAX];

    snprintf(hint, sizeof(hint), "install runc, or set runtime in %s", conf_path);
    if (name[0] != '/') {
        if (search(name, found, &passed_over) == 0)
            return 0;
        return fail(why, ENOENT, hint, "no runtime \"%s\" in PATH%s", name,
                    passed_over ? " other than mgpu-runtime itself" : "");
    }
    snprintf(found, PATH_MAX, "%s", name);
    if (!is_program(found))
        return fail(why, ENOENT, hint, "the runtime %s is not there or not executable", name);
    if (leads_back(found))
        return fail(why, ELOOP, hint, "the runtime %s is mgpu-runtime itself", name);
    return 0;
}
