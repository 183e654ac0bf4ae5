/* containerd-shim-mgpu-v2: containerd's own runc shim, with a runc first on PATH that is mgpu-runtime.
 *
 * It adds no lifecycle of its own. Standard input (options) is not read, standard output (what containerd
 * parses) is not written, arguments pass as they are: every verb, pod grouping, recovery and events are
 * upstream's, and nothing of ours stays in memory. PATH survives, since the runc shim starts its long-lived
 * self with its own environment.
 *
 * Invoked through a script whose first line is `#!…/containerd-shim-mgpu-v2 --mgpu-path=DIR`, it takes the
 * runc in DIR; otherwise the one that was installed beside it. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UPSTREAM      "containerd-shim-runc-v2"
#define OPTION        "--mgpu-path="
#define FALLBACK_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int fail(const char *what, const char *why, const char *hint)
{
    fprintf(stderr, "mgpu: %s: %s; %s\n", what, why, hint);
    return 1;
}

/* The folder of the runc that is installed with us. */
static int beside_us(char dir[PATH_MAX])
{
    ssize_t bytes = readlink("/proc/self/exe", dir, PATH_MAX - 1);
    char *slash;

    if (bytes < 0)
        return -errno;
    dir[bytes] = '\0';
    slash = strrchr(dir, '/');
    if (!slash || slash + sizeof("/path") >= dir + PATH_MAX)
        return -ENAMETOOLONG;
    strcpy(slash, "/path");
    return 0;
}

int main(int argc, char **argv)
{
    char dir[PATH_MAX], runc[PATH_MAX + sizeof("/runc")], *path;
    const char *before = getenv("PATH");
    int skip = 0, error;

    if (argc > 2 && !strncmp(argv[1], OPTION, strlen(OPTION))) {
        skip = 2; /* the option, and the script's own path in place of argv[0] */
        error = snprintf(dir, sizeof(dir), "%s", argv[1] + strlen(OPTION)) < PATH_MAX ? 0 : -ENAMETOOLONG;
    } else {
        error = beside_us(dir);
    }
    if (error < 0)
        return fail("the folder of mgpu's runc", strerror(-error), "install mgpu again");
    snprintf(runc, sizeof(runc), "%s/runc", dir);
    /* If it is missing, containers would get the plain runc, and nothing would be enforced. */
    if (access(runc, X_OK) < 0)
        return fail(runc, strerror(errno), "install mgpu again");
    if (asprintf(&path, "%s:%s", dir, before && *before ? before : FALLBACK_PATH) < 0 ||
        setenv("PATH", path, 1) < 0)
        return fail("PATH", strerror(errno), "try again");
    execvp(UPSTREAM, argv + skip);
    return fail(UPSTREAM, strerror(errno), "install containerd's runc shim, or put it on containerd's PATH");
}
