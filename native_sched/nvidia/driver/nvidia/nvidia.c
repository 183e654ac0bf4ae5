/* NVIDIA's driver behind the driver table. docs/nvidia-driver.md says what is verified and what only a GPU
 * can show. */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "context.h"
#include "native_sched/nvidia/driver/nvidia/files/unpollable.h"
#include "native_sched/nvidia/driver/nvidia/host/stat.h"
#include "native_sched/nvidia/driver/nvidia/host/uvm.h"
#include "native_sched/nvidia/driver/samples.h"
#include "native_sched/process/caller.h"
#include "private.h"
#include "scan.h"
#include "tables.h"
#include "unlocated.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { GRANULE_BYTES = 64 << 10 }; /* the least that the memory manager gives, even for a 4 KiB page */
/* The shortest time between two scans, however many files tenants hide. */
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

/* Whether the kernel has what the file table needs. */
static int check_kernel(void)
{
    scoped_fd int fd = eventfd(0, EFD_CLOEXEC);
    scoped_fd int other = eventfd(0, EFD_CLOEXEC);
    struct weak_ref weak;
    int e;

    if (fd < 0 || other < 0)
        return -errno;
    if ((e = weak_ref_take(fd, &weak)) < 0)
        return e;
    e = weak_ref_compare(&weak, fd) == 0 && weak_ref_compare(&weak, other) > 0 ? 0 : -ENOSYS;
    weak_ref_drop(&weak);
    return e;
}

/* Reads the engine status of a card, or of one of its MIG instances. RM tells an instance's runlists only to
 * clients that are subscribed to it. */
static uint32_t runlists_of(struct driver *d, const struct card *card, const struct own_card *own,
                            struct runlist *out)
{
    struct nvidia_instance *instance = &d->instance[card->index];
    struct nvidia_client *c;
    uint32_t n;

    if (card->gpu_instance == RM_NO_INSTANCE)
        return nvidia_client_runlists(&d->client, own, out, ENGINES_MAX);
    if (!instance->is) /* its number is that instance's for good */
        nvidia_instance_init(instance, card, own);
    if (nvidia_instance_enter(instance, d->host, &c) < 0)
        return 0;
    n = nvidia_client_runlists(c, &c->card[0], out, ENGINES_MAX);
    nvidia_instance_leave(instance);
    return n;
}

/* Kernels that are locked down or have IO_STRICT_DEVMEM, as Debian's, let nobody map a PCI device's file: RM
 * maps the same registers for a privileged client. */
static int map_registers(struct driver *d, const struct own_card *own, void **at, size_t *bytes)
{
    scoped_fd int bar = -1;
    char path[300];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%04x:%02x:%02x.0/resource0", d->host->pci_dir, own->pci_domain,
             own->pci_bus, own->pci_slot);
    if ((bar = open(path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(bar, &st) < 0)
        return -errno;
    *bytes = (size_t)st.st_size;
    *at = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, bar, 0);
    return *at != MAP_FAILED ? 0 : nvidia_client_registers(&d->client, own, *bytes, at);
}

static void open_status(struct driver *d, const struct card *card)
{
    const struct own_card *own = nvidia_client_attach(&d->client, card->minor);
    const struct chip *chip = own ? nvidia_client_chip(&d->client, own) : NULL;
    struct runlist runlist[ENGINES_MAX];
    uint32_t n = 0;
    size_t bytes = 0;
    void *at;

    d->chip[card->index] = chip;
    if (!chip ||
        (chip->whole_card ? card->gpu_instance != RM_NO_INSTANCE : !(n = runlists_of(d, card, own, runlist))))
        return;
    if (map_registers(d, own, &at, &bytes) == 0)
        (void)registers_open(&d->registers[card->index], at, bytes, chip, runlist, n);
}

static void nvidia_add_card(struct driver *d, const struct card *card)
{
    d->held[card->index] = card;
    open_status(d, card);
}

/* MIG instances share their GPU's files. */
static void nvidia_release_card(struct driver *d, const struct card *card, bool alone)
{
    registers_close(&d->registers[card->index]);
    d->held[card->index] = NULL;
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        if (d->held[i] && d->held[i]->minor == card->minor)
            return;
    nvidia_client_detach(&d->client, card->minor);
    if (alone)
        nvidia_client_rest(&d->client);
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
    d->scans_sooner = true;
    d->uvm_major = nvidia_major_of(host->majors_path, "nvidia-uvm");
    pthread_mutex_init(&d->watch_lock, NULL);
    pthread_cond_init(&d->watch_left, NULL);
    if ((d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        e = -errno;
        goto fail;
    }
    if ((e = nvidia_last_close_open(&d->closes)) < 0)
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
    nvidia_last_close_end(&d->closes);
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
    while (d->watched) /* the watching thread calls again until it receives -ECANCELED */
        pthread_cond_wait(&d->watch_left, &d->watch_lock);
    pthread_mutex_unlock(&d->watch_lock);
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        registers_close(&d->registers[i]);
    guard_close(&d->guard, d->host);
    nvidia_client_close(&d->client);
    nvidia_files_destroy(&d->files);
    nvidia_last_close_end(&d->closes);
    close(d->wake);
    free(d);
}

static void nvidia_tenant_exited(struct driver *d, const struct tenant *t)
{
    nvidia_unlocated_exited(d, t);
    unpollable_tenant_exited(&d->files, t);
}

static bool was_given(const struct tenant *t, const struct nvidia_node *node)
{
    uint32_t nodes = __atomic_load_n(&t->nodes, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < nodes; i++)
        if (t->node[i].kind == node->kind &&
            (node->kind != NODE_CARD || __atomic_load_n(&t->node[i].minor, __ATOMIC_RELAXED) == node->minor))
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
    nvidia_unlocated_found(d, t, ours, at);
    e = nvidia_files_identify(&d->files, t, &of, ours, at, node.kind != NODE_UVM, out);
    if (e != -ENOENT)
        return e;
    /* Every file is known before it is initialised. So this one was unlocated and has charges under another
     * name, or INITIALIZE was called on one file and made on another: it gets no address space. UVM is asked
     * without the table's lock. */
    if (nvidia_uvm_is_initialized(d->host, ours))
        return -EPERM;
    return nvidia_files_identify(&d->files, t, &of, ours, at, true, out);
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

static int nvidia_hold_file(struct driver *d, const struct open_file *file)
{
    return nvidia_files_pin(&d->files, file->id);
}

static void nvidia_unpin(struct driver *d, const struct open_file *file)
{
    nvidia_files_unpin(&d->files, file->id);
}

static int nvidia_engine_status(struct driver *d, const struct card *card, uint64_t engines,
                                struct engine_status *out)
{
    return registers_read(&d->registers[card->index], engines, out);
}

/* RM has none of MIG instances, nor of a card that has some. */
static int nvidia_samples(struct driver *d, const struct card *card, const struct rm_table *rm,
                          struct card_samples *out)
{
    const struct own_card *own = nvidia_client_card(&d->client, card->minor);
    struct samples s;
    int e;

    if (!own || card->gpu_instance != RM_NO_INSTANCE)
        return own ? -ENOTSUP : -ENXIO;
    samples_ask(&s, rm);
    e = nvidia_client_control(&d->client, own->subdevice,
                              NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, s.params, s.bytes);
    return e < 0 ? e : samples_newest(&s, rm, out);
}

static const struct chip *nvidia_chip(const struct driver *d, const struct card *card)
{
    return d->chip[card->index];
}

static int nvidia_device_instance(struct driver *d, uint32_t minor)
{
    const struct own_card *card = nvidia_client_attach(&d->client, minor);

    return card ? (int)card->device_instance : -ENODEV;
}

static int nvidia_has_client(struct driver *d, uint32_t client)
{
    return nvidia_client_exists(&d->client, client);
}

/* The calling thread is in the same pid namespace as those that recorded the pids. */
static int nvidia_pid_info(struct driver *d, uint32_t minor, struct rm_pid_info *info)
{
    const struct own_card *card = nvidia_client_card(&d->client, minor);

    return card ? nvidia_client_control(&d->client, card->subdevice, NV2080_CTRL_CMD_GPU_GET_PID_INFO, info,
                                        sizeof(*info))
                : -ENXIO;
}

static int nvidia_pids(struct driver *d, uint32_t minor, struct rm_pids *out)
{
    const struct own_card *card = nvidia_client_card(&d->client, minor);

    *out = (struct rm_pids){.id = NV20_SUBDEVICE_0};
    return card ? nvidia_client_control(&d->client, card->subdevice, NV2080_CTRL_CMD_GPU_GET_PIDS, out,
                                        sizeof(*out))
                : -ENXIO;
}

static int nvidia_guard(struct driver *d, const uint32_t *pid_ns, uint32_t tenants)
{
    return guard_keep(&d->guard, d->host, pid_ns, tenants);
}

const struct driver_ops driver_nvidia = {
    .name = "nvidia",
    .open = nvidia_open,
    .close = nvidia_close,
    .identify = nvidia_identify,
    .adopt = nvidia_adopt,
    .hold_file = nvidia_hold_file,
    .unpin = nvidia_unpin,
    .execute = nvidia_execute,
    .must_continue = nvidia_must_continue,
    .add_card = nvidia_add_card,
    .release_card = nvidia_release_card,
    .device_instance = nvidia_device_instance,
    .context_bytes = nvidia_context_bytes,
    .own_bytes = nvidia_own_bytes,
    .managed = nvidia_managed,
    .initialized = nvidia_initialized,
    .client_exists = nvidia_has_client,
    .pid_info = nvidia_pid_info,
    .pids = nvidia_pids,
    .known_file = nvidia_known_file,
    .next_closed = nvidia_next_closed,
    .any_closing = nvidia_any_closing,
    .tenant_exited = nvidia_tenant_exited,
    .guard = nvidia_guard,
    .stop_watch = nvidia_stop_watch,
    .userd_map = nvidia_userd_map,
    .userd_unmap = nvidia_userd_unmap,
    .engine_status = nvidia_engine_status,
    .samples = nvidia_samples,
    .chip = nvidia_chip,
    .granule_bytes = GRANULE_BYTES,
};
