/* NVIDIA's driver behind the one driver table. What is verified and what is to be decided on a card: docs/nvidia-driver.md. */
#define _GNU_SOURCE
#include "../base/scoped.h"
#include "../boundary/caller.h"
#include "nvidia_private.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum { GRANULE_BYTES = 64 << 10 }; /* the least that the memory manager gives, even for a 4 KiB page */
/* Files that are nowhere to be found are looked for again that often, whatever tenants do. */
static const uint64_t scan_gap_ns = 500ull * 1000 * 1000;

static char probes[160] = "not looked for yet";

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

static uint32_t open_status(struct driver *d)
{
    uint32_t base[ENGINES_MAX], n, found = 0;
    char path[300];

    for (uint32_t i = 0; i < d->client.cards; i++) {
        const struct own_card *card = &d->client.card[i];

        if (!card->subdevice || card->minor >= MAX_CARDS)
            continue;
        n = nvidia_client_runlists(&d->client, card, base, ENGINES_MAX);
        snprintf(path, sizeof(path), "%s/%04x:%02x:%02x.0/resource0", d->host->pci_dir, card->pci_domain,
                 card->pci_bus, card->pci_slot);
        found += nvidia_status_open(&d->status[card->minor], path, base, n) > 0;
    }
    return found;
}

static void describe_probes(const struct driver *d, uint32_t status)
{
    if (status)
        snprintf(probes, sizeof(probes), "USERD GP_PUT (shared mappings), engine status of %u of %u cards",
                 status, d->client.cards);
    else
        snprintf(probes, sizeof(probes),
                 "USERD GP_PUT (shared mappings); engine status not available: nobody is ever seen idle");
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
    describe_probes(d, open_status(d));
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
    nvidia_files_tenant_ended(&d->files, t);
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

    if (fstat(ours, &st) < 0)
        return -errno;
    if ((e = d->host->classify(&st, d->uvm_major, &node)) < 0)
        return e;
    if (!was_given(t, &node))
        return -EPERM;
    of = (struct open_file){.kind = node.kind, .minor = node.minor};
    return nvidia_files_identify(&d->files, t, &of, ours, at, out);
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

int nvidia_engine_status(struct driver *d, uint32_t minor, struct engine_status *out)
{
    return minor < MAX_CARDS ? nvidia_status_read(&d->status[minor], out) : -EINVAL;
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

    return card ? nvidia_client_control(&d->client, card->subdevice, RM_CTRL_GPU_GET_PID_INFO, info,
                                        sizeof(*info))
                : -ENODEV;
}

static bool nvidia_disables_channels(const struct driver *d)
{
    return d->disables_channels;
}

const struct driver_ops driver_nvidia = {
    .name = "nvidia",
    .open = nvidia_open,
    .close = nvidia_close,
    .identify = nvidia_identify,
    .adopt = nvidia_adopt,
    .execute = nvidia_execute,
    .must_continue = nvidia_must_continue,
    .device_instance = nvidia_device_instance,
    .managed = nvidia_managed,
    .initialized = nvidia_initialized,
    .pid_info = nvidia_pid_info,
    .disables_channels = nvidia_disables_channels,
    .next_gone = nvidia_next_gone,
    .tenant_ended = nvidia_tenant_ended,
    .stop_watch = nvidia_stop_watch,
    .userd_map = nvidia_userd_map,
    .userd_unmap = nvidia_userd_unmap,
    .engine_status = nvidia_engine_status,
    .probes = probes,
    .granule_bytes = GRANULE_BYTES,
};
