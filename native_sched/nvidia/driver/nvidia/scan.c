#define _GNU_SOURCE
#include "scan.h"
#include "base/scoped.h"
#include "native_sched/nvidia/driver/nvidia/host/stat.h"
#include "unlocated.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static void scoped_closedir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
#define scoped_dir __attribute__((cleanup(scoped_closedir)))

static bool of_the_driver(const struct driver *d, int dir, const char *name)
{
    struct nvidia_node node;
    struct stat st;

    return nvidia_stat(dir, name, &st) == 0 && d->host->classify(&st, d->uvm_major, &node) == 0;
}

static int number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    return *end || end == text ? -1 : (int)n;
}

/* True once `found` says so. */
static bool scan_process(struct driver *d, pid_t pid, scan_fn found, void *context)
{
    const struct dirent *e;
    char path[40];

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    scoped_dir DIR *dir = opendir(path);
    while (dir && (e = readdir(dir))) {
        struct fd_place at = {.tid = pid, .tgid = pid, .fd = number(e->d_name)};

        if (at.fd >= 0 && of_the_driver(d, dirfd(dir), e->d_name) && found(context, at))
            return true;
    }
    return false;
}

bool nvidia_scan_each(struct driver *d, scan_fn found, void *context)
{
    scoped_dir DIR *proc = opendir("/proc");
    const struct dirent *e;
    pid_t pid;

    while (proc && (e = readdir(proc)))
        if ((pid = number(e->d_name)) > 0 && pid != getpid() && scan_process(d, pid, found, context))
            return true;
    return false;
}

bool nvidia_known_file(struct driver *d, pid_t pid, int dir, const char *fd, struct open_file *out)
{
    struct fd_place at = {.tid = pid, .tgid = pid, .fd = number(fd)};
    scoped_fd int ours = at.fd >= 0 && of_the_driver(d, dir, fd) ? fd_place_fetch(&at) : -1;

    return ours >= 0 && nvidia_files_named(&d->files, ours, out);
}

static bool note(void *context, struct fd_place at)
{
    struct driver *d = context;
    scoped_fd int fd = fd_place_fetch(&at);

    if (fd < 0)
        return false;
    nvidia_unlocated_found(d, NULL, fd, at);
    nvidia_files_note(&d->files, fd, at);
    return false;
}

void nvidia_scan(struct driver *d)
{
    nvidia_scan_each(d, note, d);
}
