/* The simulated card as a driver. Device nodes are null devices under NVIDIA's names; on the first call on
 * such a file the caller's fd is replaced by one the card holds the other end of, so that the last close is
 * seen by the card as a driver would see it. */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "line.h"
#include "native_sched/nvidia/driver/managed_map.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "native_sched/process/caller.h"
#include "sim/abi/channel_abi.h"
#include "sim/abi/uvm_sizes.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { GRANULE_BYTES = 64 << 10 };

/* From here on the card reports every file that is closed; what the previous mgpud asked of it has been done.
 */
static int open_events(const struct driver *d)
{
    static const struct sim_request hello = {.op = SIM_SUBSCRIBE};
    struct sim_event first;
    int fd = sim_dial(d), e;

    if (fd < 0)
        return fd;
    if (send(fd, &hello, offsetof(struct sim_request, payload), MSG_NOSIGNAL) > 0 &&
        recv(fd, &first, sizeof(first), 0) == sizeof(first))
        return fd;
    e = errno ? -errno : -EIO;
    close(fd);
    return e;
}

static int ask_of_files(const struct driver *d, enum sim_op op, const struct open_file *file, uint32_t files)
{
    struct line *l = sim_line();

    if (!l)
        return -ENOMEM;
    sim_begin(l, op);
    l->request.outer_bytes = files * (uint32_t)sizeof(file->id);
    for (uint32_t i = 0; i < files; i++)
        memcpy(l->request.payload + i * sizeof(file->id), &file[i].id, sizeof(file->id));
    return sim_ask(d, l, l->request.outer_bytes, NULL);
}

/* Asked at once, so that no container waits for the questions of all before it. What closes from here on is
 * reported. */
static int drop_closed(struct driver *d)
{
    enum { FILES_AT_ONCE = 256 };
    struct open_file file[FILES_AT_ONCE], gone;
    uint32_t at = 0, n;
    int e = 0;

    while (e == 0 && (n = files_list(d->files, NULL, &at, file, FILES_AT_ONCE))) {
        const struct line *l = sim_line();

        e = ask_of_files(d, SIM_FILES, file, n);
        if (e == 0 && l->reply.outer_bytes != n)
            e = -EIO;
        for (uint32_t i = 0; i < n && e == 0; i++)
            if (!l->reply.payload[i])
                files_take(d->files, file[i].id, &gone);
    }
    return e;
}

static int sim_open(const char *dir, struct files *files, struct driver **out)
{
    struct driver *d = calloc(1, sizeof(*d));
    int e;

    if (!d)
        return -ENOMEM;
    d->files = files;
    d->own_fd = -1;
    pthread_mutex_init(&d->own, NULL);
    d->at.sun_family = AF_UNIX;
    if (snprintf(d->at.sun_path, sizeof(d->at.sun_path), "%s/card.sock", dir) >=
        (int)sizeof(d->at.sun_path)) {
        free(d);
        return -ENAMETOOLONG;
    }
    if ((e = d->events = open_events(d)) < 0) {
        free(d);
        return e;
    }
    if ((e = drop_closed(d)) < 0) {
        close(d->events);
        free(d);
        return e;
    }
    *out = d;
    return 0;
}

static void sim_stop_watch(struct driver *d)
{
    shutdown(d->events, SHUT_RDWR);
}

static void sim_close(struct driver *d)
{
    close(d->events);
    sim_unmap_all(d);
    if (d->own_fd >= 0)
        close(d->own_fd);
    pthread_mutex_destroy(&d->own);
    free(d);
}

static bool node_of(const struct tenant *t, const struct stat *st, struct tenant_node *out)
{
    uint32_t nodes = __atomic_load_n(&t->nodes, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < nodes; i++)
        if (t->node[i].dev == st->st_dev && t->node[i].ino == st->st_ino) {
            *out = (struct tenant_node){
                .kind = t->node[i].kind,
                .minor = __atomic_load_n(&t->node[i].minor, __ATOMIC_RELAXED),
            };
            return out->minor != NODE_LEFT;
        }
    return false;
}

static int open_and_replace(struct driver *d, struct caller *c, struct tenant *t, int fd,
                            const struct tenant_node *node, struct open_file *out)
{
    struct line *l = sim_line();
    pid_t tgid = caller_tgid(c);
    scoped_fd int ours = -1;
    struct stat st;
    int e;

    if (!l)
        return -ENOMEM;
    *out = (struct open_file){.tenant = t, .kind = node->kind, .minor = node->minor};
    if (!tgid)
        return -ESRCH;
    sim_begin(l, SIM_OPEN);
    l->request.node = node->kind;
    l->request.minor = node->minor;
    l->request.tgid = tgid;
    if ((e = sim_ask(d, l, 0, &ours)) < 0 || ours < 0)
        return e < 0 ? e : -EIO;
    if (fstat(ours, &st) < 0)
        return -errno;
    out->id = l->reply.file;
    atomic_store_explicit(&d->reread_us, l->reply.reread_us, memory_order_relaxed);
    out->dev = st.st_dev;
    out->ino = st.st_ino;
    if ((e = files_add(d->files, out)) < 0)
        return e;
    /* If this fails our copy is the last one: its close is the card's hang-up, and that ends the entry. */
    return caller_replace_fd(c, fd, ours);
}

static int sim_identify(struct driver *d, struct caller *c, struct tenant *t, int fd, struct open_file *out)
{
    struct file_identity identity;
    struct tenant_node node;
    struct stat st;

    if (caller_recall_file(c, fd, &identity) && files_find(d->files, identity.dev, identity.ino, out))
        return out->tenant == t ? 0 : -EPERM;
    scoped_fd int ours = caller_fetch_fd(c, fd);
    if (ours < 0)
        return ours;
    if (fstat(ours, &st) < 0)
        return -errno;
    /* A file of nvidia-uvm can be mapped and so is no pipe. */
    if ((S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode)) && files_find(d->files, st.st_dev, st.st_ino, out)) {
        if (out->tenant != t)
            return -EPERM;
        identity = (struct file_identity){st.st_dev, st.st_ino};
        if (S_ISFIFO(st.st_mode))
            caller_remember_file(c, fd, ours, &identity);
        return 0;
    }
    if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) && node_of(t, &st, &node))
        return open_and_replace(d, c, t, fd, &node, out);
    return -ENOTTY;
}

static bool sim_any_closing(struct driver *d, const struct open_file *file, uint32_t files)
{
    return ask_of_files(d, SIM_ENDED, file, files) == -EBADF;
}

/* A client belongs to its caller: the driver records the process that made it. So do pages of its own, and
 * what most commands of nvidia-uvm concern. */
static bool sim_must_continue(const struct driver_call *call)
{
    const struct rm_alloc *a = (const void *)call->outer; /* in both layouts the class is at the same place */
    const struct rm_alloc_memory *m = (const void *)call->outer;

    if (call->file->kind == NODE_UVM)
        return !call->row || call->row->of != RM_UVM || !call->row->executed;
    if (RM_NR(call->cmd) == NV_ESC_RM_ALLOC_MEMORY)
        return m->class_id == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
    return RM_NR(call->cmd) == NV_ESC_RM_ALLOC &&
           (a->class_id == NV01_ROOT || a->class_id == NV01_ROOT_CLIENT);
}

/* All of a UVM command's parameters are what its argument points to. */
static int uvm_as_caller(struct driver *d, struct caller *c, uint64_t at, struct driver_call *call)
{
    struct driver_call uvm = *call;
    uint32_t bytes = uvm_size_of(call->rm, call->cmd).bytes;
    int e;

    if (bytes > call->params_max)
        return -EINVAL;
    if (bytes && (e = caller_read(c, at, call->params, bytes)) < 0)
        return e;
    uvm.outer = call->params;
    uvm.outer_bytes = bytes;
    uvm.params_bytes = 0;
    e = sim_execute(d, &uvm);
    call->params_at = at;
    call->params_bytes = bytes;
    return e;
}

/* The parameters that the call names by now: their size is the class's, as the driver has it. */
static int reread_params(struct caller *c, struct driver_call *call)
{
    const struct rm_alloc *a = (const void *)call->outer;
    int bytes = rm_class_params(call->rm, a->class_id);

    call->params_bytes = 0;
    if (RM_NR(call->cmd) != NV_ESC_RM_ALLOC || bytes <= 0 || !a->params)
        return 0;
    if ((uint32_t)bytes > call->params_max)
        return -EINVAL;
    call->params_at = a->params;
    call->params_bytes = (uint32_t)bytes;
    return caller_read(c, a->params, call->params, (size_t)bytes);
}

static int call_again(struct driver *d, struct caller *c, uint64_t outer_at, struct driver_call *call)
{
    int e;

    if (call->file->kind == NODE_UVM)
        return uvm_as_caller(d, c, outer_at, call);
    if ((e = caller_read(c, outer_at, call->outer, call->outer_bytes)) < 0 ||
        (e = reread_params(c, call)) < 0)
        return e;
    return sim_execute(d, call);
}

/* By then the descriptor may be another file's, as in the kernel. */
static int sim_as_caller(struct driver *d, struct caller *c, uint64_t outer_at, struct driver_call *call)
{
    uint32_t us = atomic_load_explicit(&d->reread_us, memory_order_relaxed);
    struct timespec wait = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    const struct open_file *judged = call->file;
    struct open_file now;
    int e;

    if (us)
        nanosleep(&wait, NULL);
    if ((e = sim_identify(d, c, judged->tenant, (int)c->req->data.args[0], &now)) < 0)
        return e;
    call->file = &now;
    e = call_again(d, c, outer_at, call);
    call->file = judged;
    return e;
}

static int sim_userd_map(struct driver *d, const struct rm_target *channel, struct userd *out)
{
    const struct sim_userd_of of = {.client = channel->client, .channel = channel->handle};
    struct line *l = sim_line();
    scoped_fd int fd = -1;
    uint64_t offset;
    int e;

    if (!l)
        return -ENOMEM;
    sim_begin(l, SIM_USERD);
    l->request.file = channel->file.id;
    l->request.outer_bytes = sizeof(of);
    memcpy(l->request.payload, &of, sizeof(of));
    if ((e = sim_ask(d, l, sizeof(of), &fd)) < 0)
        return e;
    if (fd < 0 || l->reply.outer_bytes != sizeof(offset))
        return -EIO;
    memcpy(&offset, l->reply.payload, sizeof(offset));
    if ((e = sim_map_readonly(fd, &out->map, &out->map_bytes)) < 0)
        return e;
    if (offset > out->map_bytes || out->map_bytes - offset < RM_USERD_BYTES) {
        munmap(out->map, out->map_bytes);
        return -EIO;
    }
    out->at = (const volatile uint8_t *)out->map + offset;
    out->has_get = chip_shows_get(sim_chip(d, channel->userd.card), channel->userd.class_id);
    return 0;
}

static void sim_userd_unmap(struct userd *userd)
{
    munmap(userd->map, userd->map_bytes);
}

static bool is_uvm(struct driver *d, const char *path)
{
    struct open_file file;
    struct statx st;

    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &st) < 0)
        return true;
    return files_find(d->files, makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino, &file) &&
           file.kind == NODE_UVM;
}

static int64_t sim_managed(struct driver *d, int map, pid_t tid, uint64_t from, uint64_t to)
{
    return managed_mapped(&(const struct managed_files){d, is_uvm}, map, tid, from, to);
}

static int64_t sim_next_closed(struct driver *d)
{
    struct sim_event event;

    for (;;) {
        ssize_t n = recv(d->events, &event, sizeof(event), 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof(event))
            return -EIO;
        if (event.kind == SIM_EVENT_FILE_GONE)
            return (int64_t)event.file;
    }
}

const struct driver_ops driver_sim = {
    .name = "sim",
    .open = sim_open,
    .close = sim_close,
    .identify = sim_identify,
    .execute = sim_execute,
    .must_continue = sim_must_continue,
    .as_caller = sim_as_caller,
    .managed = sim_managed,
    .add_card = sim_add_card,
    .release_card = sim_release_card,
    .client_exists = sim_client_exists,
    .pid_info = sim_pid_info,
    .pids = sim_pids,
    .known_file = sim_known_file,
    .next_closed = sim_next_closed,
    .any_closing = sim_any_closing,
    .stop_watch = sim_stop_watch,
    .userd_map = sim_userd_map,
    .userd_unmap = sim_userd_unmap,
    .engine_status = sim_engine_status,
    .samples = sim_samples,
    .chip = sim_chip,
    .granule_bytes = GRANULE_BYTES,
};
