/* The NVIDIA driver with ordinary files for its nodes and a resource manager that the test answers for, as
 * flat functions. */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/channels/channel_control.h"
#include "../../native_sched/nvidia/driver/nvidia/files/unpollable.h"
#include "../../native_sched/nvidia/driver/nvidia/host/unshared.h"
#include "../../native_sched/nvidia/driver/nvidia/private.h"
#include "../../native_sched/nvidia/driver/nvidia/scan.h"
#include "../../native_sched/nvidia/rm/table.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { NODES = 8, TENANTS = 2, CARDS = 4 };

typedef int (*ioctl_fn)(int fd, uint32_t cmd, void *arg);

static struct {
    dev_t dev;
    ino_t ino;
    struct nvidia_node is;
} node[NODES];
static int nodes;

struct harness {
    struct nvidia_host host;
    struct files files;
    struct driver *driver;
    struct tenant tenant[TENANTS];
    char dev_dir[256], pci_dir[256], majors[256], minors[300], references[300];
    struct card card[CARDS];
};

/* The null device cannot be polled, as nvidia-uvm cannot. */
static int classify(const struct stat *st, uint32_t uvm_major, struct nvidia_node *out)
{
    (void)uvm_major;
    for (int i = 0; i < nodes; i++)
        if (node[i].dev == st->st_dev && node[i].ino == st->st_ino) {
            *out = node[i].is;
            return 0;
        }
    if (!S_ISCHR(st->st_mode) || st->st_rdev != makedev(1, 3))
        return -ENOTTY;
    *out = (struct nvidia_node){NODE_UVM, 0};
    return 0;
}

int harness_node(const char *path, int kind, uint32_t minor)
{
    struct stat st;

    if (nodes == NODES || stat(path, &st) < 0)
        return -1;
    node[nodes].dev = st.st_dev;
    node[nodes].ino = st.st_ino;
    node[nodes++].is = (struct nvidia_node){(enum node_kind)kind, minor};
    return 0;
}

struct harness *harness_open(const char *dev_dir, const char *pci_dir, const char *majors, ioctl_fn answer,
                             int *error)
{
    struct harness *h = calloc(1, sizeof(*h));

    strncpy(h->dev_dir, dev_dir, sizeof(h->dev_dir) - 1);
    strncpy(h->pci_dir, pci_dir, sizeof(h->pci_dir) - 1);
    strncpy(h->majors, majors, sizeof(h->majors) - 1);
    snprintf(h->minors, sizeof(h->minors), "%s/mig-minors", dev_dir);
    snprintf(h->references, sizeof(h->references), "%s/uvm-references", dev_dir);
    h->host = (struct nvidia_host){
        .dev_dir = h->dev_dir,
        .pci_dir = h->pci_dir,
        .majors_path = h->majors,
        .minors_path = h->minors,
        .uvm_references_path = h->references,
        .classify = classify,
        .ioctl = answer,
    };
    files_init(&h->files, -1);
    for (int i = 0; i < TENANTS; i++) {
        h->tenant[i].id = (uint64_t)i + 1;
        h->tenant[i].nodes = 3;
        h->tenant[i].node[0] = (struct tenant_node){.kind = NODE_CTL};
        h->tenant[i].node[1] = (struct tenant_node){.kind = NODE_CARD, .minor = 0};
        h->tenant[i].node[2] = (struct tenant_node){.kind = NODE_UVM};
    }
    *error = nvidia_open_with(&h->host, &h->files, &h->driver);
    if (!*error)
        return h;
    files_destroy(&h->files);
    free(h);
    return NULL;
}

/* gpu_instance -1: the card as a whole. */
void harness_add_card(struct harness *h, uint32_t index, uint32_t minor, int gpu_instance,
                      int compute_instance)
{
    h->card[index] = (struct card){
        .index = index,
        .minor = minor,
        .gpu_instance = (uint32_t)gpu_instance,
        .compute_instance = (uint32_t)compute_instance,
    };
    driver_nvidia.add_card(h->driver, &h->card[index]);
}

void harness_release_card(struct harness *h, uint32_t index, int alone)
{
    driver_nvidia.release_card(h->driver, &h->card[index], alone);
}

void harness_close(struct harness *h)
{
    nvidia_close(h->driver);
    files_destroy(&h->files);
    free(h);
    nodes = 0;
}

/* The file's id, or a negative errno. */
int64_t harness_identify(struct harness *h, int tenant, int pid, int fd)
{
    struct fd_place at = {pid, pid, fd};
    int ours = fd_place_fetch(&at);
    struct open_file file;
    int e;

    if (ours < 0)
        return ours;
    e = nvidia_identify_fetched(h->driver, &h->tenant[tenant], ours, at, &file);
    close(ours);
    if (e == 0 && !files_open(&h->files, &file))
        return -EBADFD; /* the engine would not add a client to it */
    return e < 0 ? e : (int64_t)file.id;
}

int harness_fetch(struct harness *h, int64_t id)
{
    int fd = nvidia_files_fetch(&h->driver->files, (uint64_t)id);

    nvidia_files_put(&h->driver->files, (uint64_t)id);
    return fd;
}

void harness_scan(struct harness *h)
{
    nvidia_scan(h->driver);
}

static int64_t end(struct harness *h, int64_t id)
{
    struct open_file file;

    if (id <= 0)
        return id;
    if (!files_take(&h->files, (uint64_t)id, &file))
        return -EBADFD;
    files_forget(&h->files, file.tenant);
    return id;
}

/* A closed file; 0: none. A scan is always due. */
int64_t harness_sweep(struct harness *h)
{
    h->driver->scanned_at_ns = 0;
    unpollable_retire_unlocated(&h->driver->files, &h->host);
    nvidia_files_sweep(&h->driver->files);
    nvidia_locate(h->driver, false);
    return end(h, (int64_t)nvidia_files_take_closed(&h->driver->files));
}

int64_t harness_next_closed(struct harness *h)
{
    return end(h, nvidia_next_closed(h->driver));
}

void harness_stop(struct harness *h)
{
    uint64_t one = 1;

    atomic_store(&h->driver->stopping, true);
    if (write(h->driver->wake, &one, sizeof(one)) < 0)
        abort();
}

/* The driver is called by a thread that has a copy of all descriptors. */
int harness_unshared(struct harness *h)
{
    return nvidia_unshared_ioctl(&h->host, 0, 0, NULL);
}

/* As the watch does it, with one scan of all processes due. */
void harness_tick(struct harness *h)
{
    h->driver->scan_gap_ns = UINT64_MAX;
    nvidia_locate(h->driver, false);
}

/* The thread at one of whose descriptors the next mgpud looks for the file; 0: none. */
int harness_seen(struct harness *h, int64_t id)
{
    struct open_file file;

    return files_by_id(&h->files, (uint64_t)id, &file) ? file.seen_tid : -1;
}

/* How many files are unlocated. */
uint32_t harness_unlocated(struct harness *h)
{
    const struct nvidia_files *f = &h->driver->files;
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->unpollables; i++)
        n += f->slot[f->unpollable[i]].held_fd < 0;
    return n;
}

void harness_tenant_exited(struct harness *h, int tenant)
{
    driver_nvidia.tenant_exited(h->driver, &h->tenant[tenant]);
}

/* A duplicate that a call is made on, until harness_put(). */
int harness_use(struct harness *h, int64_t id)
{
    return nvidia_files_fetch(&h->driver->files, (uint64_t)id);
}

void harness_put(struct harness *h, int64_t id)
{
    nvidia_files_put(&h->driver->files, (uint64_t)id);
}

/* After a look through all processes: the file that is let go first; 0: none. */
int64_t harness_let_go(struct harness *h)
{
    struct nvidia_files *f = &h->driver->files;
    uint64_t id;

    unpollable_mark(f);
    nvidia_scan(h->driver);
    unpollable_scanned(f, true);
    if ((id = unpollable_next_due(f)))
        close(unpollable_take(f, id));
    return (int64_t)id;
}

/* It ends, or has, and the watch has yet to say so. */
int harness_ending(struct harness *h, int64_t id)
{
    const struct open_file file = {.id = (uint64_t)id};

    return driver_nvidia.any_closing(h->driver, &file, 1);
}

/* Our descriptor of it is closed, and it is not. */
void harness_is_unlocated(struct harness *h, int64_t id)
{
    unpollable_released(&h->driver->files, (uint64_t)id, false);
}

/* by: the way in which the kernel is to say so. */
int harness_last_close(struct harness *h, int fd, int by)
{
    struct nvidia_last_close one = {.group = {-1, -1}};

    one.group[by] = h->driver->closes.group[by];
    return nvidia_last_close(&one, fd);
}

int harness_blind_close(int fd)
{
    const struct nvidia_last_close blind = {.group = {-1, -1}};

    return nvidia_last_close(&blind, fd);
}

uint32_t harness_files_of(struct harness *h, int tenant)
{
    return files_of(&h->files, &h->tenant[tenant]);
}

static struct open_file file_named(int64_t id, int kind)
{
    return (struct open_file){.id = (uint64_t)id, .kind = (enum node_kind)kind};
}

int harness_execute(struct harness *h, int64_t id, int64_t aux, uint32_t cmd, uint8_t *outer,
                    uint32_t outer_bytes, uint8_t *params, uint32_t params_bytes)
{
    struct open_file file = file_named(id, NODE_CTL), aux_file = file_named(aux, NODE_CTL);
    struct driver_call call = {
        .file = &file,
        .aux_file = aux ? &aux_file : NULL,
        .cmd = cmd,
        .outer = outer,
        .outer_bytes = outer_bytes,
        .params = params,
        .params_bytes = params_bytes,
    };

    return driver_nvidia.execute(h->driver, &call);
}

int harness_must_continue(int kind, uint32_t cmd, uint8_t *outer, uint32_t outer_bytes)
{
    struct open_file file = file_named(1, kind);
    struct driver_call call = {.file = &file, .cmd = cmd, .outer = outer, .outer_bytes = outer_bytes};

    call.row = rm_command_row(NULL, cmd);
    call.params_row = rm_params_row(NULL, call.row, outer);
    return driver_nvidia.must_continue(&call);
}

int harness_disable(struct harness *h, int64_t id, uint32_t subdevice, const uint32_t *channel,
                    uint32_t channels, int disable)
{
    struct rm_target group = {.file = file_named(id, NODE_CTL), .client = 0xc1, .handle = 0x96};

    return channels_disable(&driver_nvidia, h->driver, &group, subdevice, channel, channels, disable);
}

/* GP_PUT of the mapped USERD, or a negative errno. */
int64_t harness_userd(struct harness *h, int64_t id, uint32_t card, uint32_t memory, uint64_t offset)
{
    struct rm_target channel = {
        .file = file_named(id, NODE_CTL),
        .client = 0xc1,
        .handle = 0xcc,
        .userd = {.card = &h->card[card], .memory = memory, .offset = offset},
    };
    struct userd userd;
    int e = driver_nvidia.userd_map(h->driver, &channel, &userd);
    uint32_t put;

    if (e < 0)
        return e;
    put = *(const volatile uint32_t *)(const volatile void *)(userd.at + RM_USERD_GP_PUT);
    driver_nvidia.userd_unmap(&userd);
    return put;
}

/* tsg_id, busy and engines of each, in threes. */
int harness_engines(struct harness *h, uint32_t card, uint32_t *out)
{
    struct engine_status engine[ENGINES_MAX];
    int n = driver_nvidia.engine_status(h->driver, &h->card[card], UINT64_MAX, engine);

    for (int i = 0; i < n; i++) {
        out[3 * i] = engine[i].tsg_id;
        out[3 * i + 1] = engine[i].busy;
        out[3 * i + 2] = (uint32_t)(engine[i].engines | engine[i].engines >> 32);
    }
    return n;
}

/* -1: no status. */
int64_t harness_decode(uint32_t architecture, uint32_t word)
{
    struct engine_status s;

    return registers_decode(chip_find(architecture, architecture == 0x1b0 ? 2 : 0), word, &s)
               ? (int64_t)s.busy << 32 | s.tsg_id
               : -1;
}

/* In the order of the table: a line of chips.tsv's columns, or false. */
bool harness_chip(uint32_t i, char *out, size_t room)
{
    const struct chip *chip = chip_at(i);

    if (!chip)
        return false;
    snprintf(out, room, "%s %#x %#x %d %#x %u %u %u %d %s", chip->name, chip->architecture,
             chip->implementation, chip->whole_card, chip->status, chip->stride, chip->words, chip->loads,
             chip->has_get, chip->header);
    return true;
}

/* known: whether the chip is. */
bool harness_shows_get(bool known, uint32_t architecture, uint32_t implementation, uint32_t channel_class)
{
    return chip_shows_get(known ? chip_find(architecture, implementation) : NULL, channel_class);
}

int harness_classify(uint32_t major, uint32_t minor, uint32_t uvm_major, int character)
{
    struct stat st = {.st_mode = character ? S_IFCHR : S_IFREG, .st_rdev = makedev(major, minor)};
    struct nvidia_node is;
    int e = nvidia_classify(&st, uvm_major, &is);

    return e < 0 ? e : (int)(is.kind << 16 | is.minor);
}

/* A weak reference on its own: epoll << 32 | number, or a negative errno. */
int64_t harness_weak(int fd)
{
    struct weak_ref w;
    int e = weak_ref_take(fd, &w);

    return e < 0 ? e : (int64_t)w.epoll << 32 | (int64_t)w.number;
}

int harness_weak_lives(int64_t weak)
{
    struct weak_ref w = {(int)(weak >> 32), (int)(weak & 0xffffffff), getpid()};

    return weak_ref_lives(&w);
}
