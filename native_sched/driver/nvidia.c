/* NVIDIA's driver behind the one driver table. What is verified and what is to be decided on a card: docs/nvidia-driver.md. */
#define _GNU_SOURCE
#include "../base/scoped.h"
#include "../boundary/caller.h"
#include "nvidia_context.h"
#include "nvidia_hidden.h"
#include "nvidia_private.h"
#include "nvidia_stat.h"
#include "nvidia_tables.h"
#include "nvidia_uvm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum { GRANULE_BYTES = 64 << 10 }; /* the least that the memory manager gives, even for a 4 KiB page */
/* Files that are nowhere to be found are looked for again that often, whatever tenants do. */
static const uint64_t scan_gap_ns = 500ull * 1000 * 1000;

/* One descriptor for each open file of a tenant. */
static void raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Whether the kernel can do what the file table lives by. */
static int check_kernel(void)
{
    scoped_fd int fd = eventfd(0, EFD_CLOEXEC);
    scoped_fd int other = eventfd(0, EFD_CLOEXEC);
    struct weak_file weak;
    int e;

    if (fd < 0 || other < 0)
        return -errno;
    if ((e = weak_file_take(fd, &weak)) < 0)
        return e;
    e = weak_file_compare(&weak, fd) == 0 && weak_file_compare(&weak, other) > 0 ? 0 : -ENOSYS;
    weak_file_drop(&weak);
    return e;
}

/* How work is seen on a card as a whole, or on one of its MIG instances: to RM an instance's runlists are a secret from clients
 * that are not subscribed to it. */
static uint32_t runlists_of(struct driver *d, const struct card *card, const struct own_card *own,
                            struct nvidia_runlist *out)
{
    struct nvidia_instance *instance = &d->instance[card->index];
    struct nvidia_client *c;
    uint32_t n;

    if (card->gpu_instance == RM_NO_INSTANCE)
        return nvidia_client_runlists(&d->client, own, out, ENGINES_MAX);
    nvidia_instance_init(instance, card, own);
    if (nvidia_instance_enter(instance, d->host, &c) < 0)
        return 0;
    n = nvidia_client_runlists(c, &c->card[0], out, ENGINES_MAX);
    nvidia_instance_leave(instance);
    return n;
}

static void open_status(struct driver *d, const struct card *card)
{
    const struct own_card *own = nvidia_client_card(&d->client, card->minor);
    struct nvidia_runlist runlist[ENGINES_MAX];
    char path[300];
    uint32_t n;

    if (!own || !(n = runlists_of(d, card, own, runlist)))
        return;
    snprintf(path, sizeof(path), "%s/%04x:%02x:%02x.0/resource0", d->host->pci_dir, own->pci_domain,
             own->pci_bus, own->pci_slot);
    (void)nvidia_status_open(&d->status[card->index], path, runlist, n);
}

static void nvidia_add_card(struct driver *d, const struct card *card)
{
    open_status(d, card);
}

int nvidia_open_with(const struct nvidia_host *host, struct files *files, struct driver **out)
{
    struct driver *d;
    int e = check_kernel();

    if (e < 0)
        return e;
    raise_fd_limit();
    if (!(d = calloc(1, sizeof(*d))))
        return -ENOMEM;
    d->host = host;
    d->scan_gap_ns = scan_gap_ns;
    d->uvm_major = nvidia_major_of(host->majors_path, "nvidia-uvm");
    pthread_mutex_init(&d->watch_lock, NULL);
    pthread_cond_init(&d->watch_left, NULL);
    if ((d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        e = -errno;
        goto fail;
    }
    if ((e = last_close_open(&d->last_close)) < 0)
        goto fail_wake;
    if ((e = nvidia_files_init(&d->files, files)) < 0)
        goto fail_last_close;
    if ((e = nvidia_client_open(&d->client, host)) < 0)
        goto fail_files;
    *out = d;
    return 0;
fail_files:
    nvidia_files_destroy(&d->files);
fail_last_close:
    last_close_end(&d->last_close);
fail_wake:
    close(d->wake);
fail:
    free(d);
    return e;
}

static int nvidia_open(const char *dir, struct files *files, struct driver **out)
{
    (void)dir;
    return nvidia_open_with(&nvidia_host, files, out);
}

static void nvidia_stop_watch(struct driver *d)
{
    atomic_store(&d->stopping, true);
    eventfd_write(d->wake, 1);
}

void nvidia_close(struct driver *d)
{
    nvidia_stop_watch(d);
    pthread_mutex_lock(&d->watch_lock);
    while (d->watched) /* it comes back until it is told that it is over */
        pthread_cond_wait(&d->watch_left, &d->watch_lock);
    pthread_mutex_unlock(&d->watch_lock);
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        nvidia_status_close(&d->status[i]);
    nvidia_client_close(&d->client);
    nvidia_files_destroy(&d->files);
    last_close_end(&d->last_close);
    close(d->wake);
    free(d);
}

static void nvidia_tenant_ended(struct driver *d, const struct tenant *t)
{
    nvidia_hidden_end(d, t);
    nvidia_files_tenant_ended(&d->files, t);
}

static bool nvidia_sees_all_uvm(struct driver *d)
{
    return nvidia_files_see_all(&d->files, d->host);
}

static bool was_given(const struct tenant *t, const struct nvidia_node *node)
{
    uint32_t nodes = __atomic_load_n(&t->nodes, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < nodes; i++)
        if (t->node[i].kind == node->kind && (node->kind != NODE_CARD || t->node[i].minor == node->minor))
            return true;
    return false;
}

int nvidia_identify_fetched(struct driver *d, struct tenant *t, int ours, struct fd_place at,
                            struct open_file *out)
{
    struct nvidia_node node;
    struct open_file of;
    struct stat st;
    int e;

    if ((e = nvidia_stat(ours, "", &st)) < 0)
        return e;
    if ((e = d->host->classify(&st, d->uvm_major, &node)) < 0)
        return e;
    if (!was_given(t, &node))
        return -EPERM;
    of = (struct open_file){.kind = node.kind, .minor = node.minor};
    nvidia_hidden_show(d, t, ours, at);
    if ((e = nvidia_files_identify(&d->files, t, &of, ours, at, out)) <= 0)
        return e;
    /* On one that is not initialised nothing is charged. Asked without the table's lock. */
    if (!nvidia_uvm_is_initialized(d->host, ours)) {
        nvidia_files_is_new(&d->files, out->id);
        out->may_be_unseen = false;
    }
    return 0;
}

static int nvidia_identify(struct driver *d, struct caller *c, struct tenant *t, int fd,
                           struct open_file *out)
{
    scoped_fd int ours = caller_fetch_fd(c, fd);
    struct fd_place at = {.tid = (pid_t)c->req->pid, .fd = fd};

    if (ours < 0)
        return ours;
    if (!(at.tgid = caller_tgid(c)))
        return -ESRCH;
    return nvidia_identify_fetched(d, t, ours, at, out);
}

int nvidia_engine_status(struct driver *d, const struct card *card, struct engine_status *out)
{
    return nvidia_status_read(&d->status[card->index], out);
}

static int nvidia_device_instance(struct driver *d, uint32_t minor)
{
    const struct own_card *card = nvidia_client_card(&d->client, minor);

    return card ? (int)card->device_instance : -ENODEV;
}

/* The thread that asks is in the same pid namespace as those who noted the pids. */
static int nvidia_pid_info(struct driver *d, uint32_t minor, struct rm_pid_info *info)
{
    const struct own_card *card = nvidia_client_card(&d->client, minor);

    return card ? nvidia_client_control(&d->client, card->subdevice, NV2080_CTRL_CMD_GPU_GET_PID_INFO, info,
                                        sizeof(*info))
                : -ENODEV;
}

const struct driver_ops driver_nvidia = {
    .name = "nvidia",
    .open = nvidia_open,
    .close = nvidia_close,
    .identify = nvidia_identify,
    .adopt = nvidia_adopt,
    .execute = nvidia_execute,
    .must_continue = nvidia_must_continue,
    .add_card = nvidia_add_card,
    .device_instance = nvidia_device_instance,
    .context_bytes = nvidia_context_bytes,
    .own_bytes = nvidia_own_bytes,
    .managed = nvidia_managed,
    .initialized = nvidia_initialized,
    .pid_info = nvidia_pid_info,
    .next_gone = nvidia_next_gone,
    .any_ended = nvidia_any_ended,
    .tenant_ended = nvidia_tenant_ended,
    .sees_all_uvm = nvidia_sees_all_uvm,
    .stop_watch = nvidia_stop_watch,
    .userd_map = nvidia_userd_map,
    .userd_unmap = nvidia_userd_unmap,
    .engine_status = nvidia_engine_status,
    .granule_bytes = GRANULE_BYTES,
};
