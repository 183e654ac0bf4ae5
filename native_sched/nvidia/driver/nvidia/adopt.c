/* Adopts files of the previous mgpud. The kernel's names of them ended with it, so each is looked for where
 * it was last seen and then among all descriptors of the driver.
 *
 * A control file is the one on which its root client answers. A card's file is only known by its descriptor;
 * its objects belong to the control file. A file that is not found counts as closed, with two exceptions. A
 * control file whose client the driver still has is unlocated: its charges stay until it comes up or its
 * client is freed. And files that may hold charges of their own stay: a file of nvidia-uvm, or a control file
 * through which something was exported.
 *
 * No file of nvidia-uvm is initialised while no mgpud serves, so an initialised one was not opened since. */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "native_sched/nvidia/driver/nvidia/host/stat.h"
#include "native_sched/nvidia/driver/nvidia/host/uvm.h"
#include "native_sched/nvidia/rm/export_abi.h"
#include "private.h"
#include "scan.h"
#include <errno.h>
#include <sys/stat.h>

/* Whether something was exported through the file. Each driver takes its own size of the parameters alone,
 * and older ones are smaller. */
static bool exports(const struct driver *d, int fd)
{
    static const uint32_t sizes[] = {80, 76};
    union {
        struct rm_export_info info;
        uint8_t bytes[80];
    } params;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        params.info.fd = fd;
        if (nvidia_client_control(&d->client, d->client.root, NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO,
                                  &params, sizes[i]) == 0)
            return true;
    }
    return false;
}

/* holds: without a client, the file is known by what is exported through it. */
static bool is_file(const struct driver *d, const struct open_file *file, uint32_t client, bool holds, int fd)
{
    struct nvidia_node node;
    struct stat st;

    return nvidia_stat(fd, "", &st) == 0 && d->host->classify(&st, d->uvm_major, &node) == 0 &&
           node.kind == file->kind && (node.kind != NODE_CARD || node.minor == file->minor) &&
           (client ? nvidia_client_answers(&d->client, fd, client)
                   : file->kind != NODE_CTL || !holds || exports(d, fd)) &&
           (file->kind != NODE_UVM || !holds || nvidia_uvm_is_initialized(d->host, fd));
}

struct search {
    struct driver *d;
    const struct open_file *file;
    uint32_t client;
    bool holds;
    int result;
};

static bool try_place(void *context, struct fd_place at)
{
    struct search *s = context;
    scoped_fd int fd = fd_place_fetch(&at);

    if (fd < 0 || !is_file(s->d, s->file, s->client, s->holds, fd))
        return false;
    s->result = nvidia_files_adopt(&s->d->files, s->file, fd, at, s->client);
    return s->result == 0;
}

int nvidia_adopt(struct driver *d, const struct open_file *file, uint32_t client, bool holds)
{
    struct search s = {.d = d, .file = file, .client = client, .holds = holds, .result = -EBADF};
    struct fd_place at = {.tid = file->seen_tid, .tgid = file->seen_tgid, .fd = file->seen_fd};

    if (at.tid && try_place(&s, at))
        return 0;
    if (client)
        nvidia_scan_each(d, try_place, &s);
    if (s.result < 0 && ((!client && holds) ||
                         (file->kind == NODE_CTL && client && nvidia_client_exists(&d->client, client))))
        s.result = nvidia_files_adopt(&d->files, file, -1, at, client);
    return s.result == 0 ? 0 : -EBADF;
}
