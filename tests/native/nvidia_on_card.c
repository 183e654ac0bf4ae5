/* The NVIDIA driver's ops table over a simulated card: its nodes are the card's own files, and what would be
 * a call to the kernel is one to the card's process. Linked with the engine in place of
 * driver/nvidia/host/host.c.
 *
 * USERD cannot be duplicated on the simulated card, which maps it for its maker alone; that is done here in
 * its maker's name. Everything else is the card's. */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/driver/nvidia/private.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include "../../sim/abi/protocol.h"
#include "death_on_card.h"
#include "debug_on_card.h"
#include "mig_on_card.h"
#include "uvm_on_card.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

enum { FILES = 2048, CLIENTS = 64, DUPLICATES = 64 };
enum { FIRMWARES = 0x8000 }; /* of a control's number */

static struct {
    ino_t ino;
    uint64_t id;
    struct nvidia_node is;
} file[FILES];
static int files;

static struct {
    uint32_t client, device;
    uint64_t file;
} client[CLIENTS] ON_CARD_KEPT;
static int clients ON_CARD_KEPT;

static struct {
    uint32_t client, handle, source_client, source;
} duplicate[DUPLICATES];
static int duplicates;

static struct own {
    int fd, keeps; /* keeps: it is open there */
    bool is_registered;
    ino_t ino;
    uint64_t id;
} own[FILES];
static int owned;

pthread_mutex_t on_card_lock = PTHREAD_MUTEX_INITIALIZER;
static char dev_dir[256], minors_path[300], references_path[300], pci_dir[300];
static int line;
static struct sim_request request;
static struct sim_reply reply;
/* Answered "not supported": an escape, such as FREE, and a control; 0: none. */
int on_card_refuse, on_card_refuse_control;
/* Clients whose files are closed are not freed yet, as RM puts that off while others call it. */
int on_card_keeps_clients;
/* A group one of whose channels is not registered with nvidia-uvm, as kchannelIsSchedulable_IMPL() has it. */
uint32_t on_card_unschedulable;
/* bytes of its own that the driver does not count to processes, as NVIDIA's does not */

int on_card_closes = -1;        /* a descriptor that the next frees close, as those of a subscription do */
uint32_t on_card_monitors;      /* MIG monitor sessions */
uint32_t on_card_memory;        /* allocations of memory that were asked for, given or not */
uint32_t on_card_virtual_flags; /* of the virtual memory that was made last, as the driver was asked */
uint32_t on_card_unscheduled,
    on_card_disabled; /* calls that took groups off their runlist, or channels off */

uint32_t on_card_exports ON_CARD_KEPT; /* how often the driver was asked for one */
uint32_t on_card_shares;               /* bits by enum rm_share_type: all that the driver has been told */

/* The engine interrupts its listeners' threads when it ends. */
static int ask(size_t payload, int *got)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec in = {&reply, sizeof(reply)};
    struct msghdr msg = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    const struct cmsghdr *h;

    if (TEMP_FAILURE_RETRY(
            send(line, &request, offsetof(struct sim_request, payload) + payload, MSG_NOSIGNAL)) < 0 ||
        TEMP_FAILURE_RETRY(recvmsg(line, &msg, MSG_CMSG_CLOEXEC)) < 0)
        abort();
    *got = -1;
    if ((h = CMSG_FIRSTHDR(&msg)) && h->cmsg_type == SCM_RIGHTS)
        memcpy(got, CMSG_DATA(h), sizeof(*got));
    return -reply.error;
}

static void close_own(void)
{
    while (owned)
        close(own[--owned].keeps);
}

/* After the last engine. */
void on_card_end(void)
{
    close_own();
    close(line);
}

/* Before the engine is opened. */
int on_card_begin(const char *socket_path, const char *nodes)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    files = clients = duplicates = 0;
    memset(duplicate, 0, sizeof(duplicate));
    uvm_on_card_begin();
    mig_on_card_begin();
    on_card_refuse = on_card_refuse_control = on_card_keeps_clients = 0;
    on_card_unschedulable = 0;
    on_card_closes = -1;
    on_card_monitors = on_card_memory = 0;
    on_card_shares = on_card_exports = 0;
    on_card_unscheduled = on_card_disabled = 0;
    strncpy(dev_dir, nodes, sizeof(dev_dir) - 1);
    snprintf(minors_path, sizeof(minors_path), "%s/mig-minors", nodes);
    snprintf(pci_dir, sizeof(pci_dir), "%s/pci", nodes);
    snprintf(references_path, sizeof(references_path), "%s/uvm-references", nodes);
    strncpy(at.sun_path, socket_path, sizeof(at.sun_path) - 1);
    line = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return connect(line, (struct sockaddr *)&at, sizeof(at)) < 0 ? -errno : 0;
}

/* Before the next engine is opened: the last one's own client has ended. */
void on_card_again(void)
{
    close_own();
    duplicates = 0;
    memset(duplicate, 0, sizeof(duplicate));
    mig_on_card_begin();
}

/* A tenant's file: what its fstat() says, what the card calls it, whose node it stands for. */
void on_card_file(uint64_t ino, uint64_t id, int kind, uint32_t minor)
{
    pthread_mutex_lock(&on_card_lock);
    file[files].ino = (ino_t)ino;
    file[files].id = id;
    file[files++].is = (struct nvidia_node){(enum node_kind)kind, minor};
    pthread_mutex_unlock(&on_card_lock);
}

static ino_t uvm_ino;

/* A file that stands for nvidia-uvm where it is to be mapped. */
void on_card_uvm_node(uint64_t ino)
{
    uvm_ino = (ino_t)ino;
}

static int classify(const struct stat *st, uint32_t uvm_major, struct nvidia_node *out)
{
    (void)uvm_major;
    if (S_ISREG(st->st_mode) && st->st_ino == uvm_ino) {
        *out = (struct nvidia_node){NODE_UVM, 0};
        return 0;
    }
    for (int i = 0; S_ISFIFO(st->st_mode) && i < files; i++)
        if (file[i].ino == st->st_ino) {
            *out = file[i].is;
            return 0;
        }
    if (!S_ISCHR(st->st_mode) || st->st_rdev != makedev(1, 3))
        return -ENOTTY;
    *out = (struct nvidia_node){NODE_UVM, 0}; /* cannot be polled, as nvidia-uvm cannot */
    return 0;
}

/* The card's name of the file behind one of our descriptors; the arbiter's own are opened when they are first
 * used. */
static uint64_t id_of(int fd)
{
    struct stat st;
    int got;

    if (fstat(fd, &st) < 0)
        abort();
    for (int i = 0; i < files; i++)
        if (file[i].ino == st.st_ino && S_ISFIFO(st.st_mode))
            return file[i].id;
    for (int i = 0; i < owned; i++)
        if (own[i].fd == fd && own[i].ino == st.st_ino)
            return own[i].id;
    char path[64], name[256] = "";
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof(name) - 1) < 0 || owned == FILES)
        abort();
    request = (struct sim_request){.op = SIM_OPEN, .tgid = getpid()};
    request.node = strstr(name, "nvidiactl") ? SIM_NODE_CTL : SIM_NODE_CARD;
    if (ask(0, &got) < 0)
        abort();
    own[owned++] = (struct own){fd, got, false, st.st_ino, reply.file};
    return reply.file;
}

/* A node that the arbiter opens where it had another is the same file here. */
static bool is_registered(uint64_t id)
{
    bool was = false;

    for (int i = 0; i < owned; i++)
        if (own[i].id == id) {
            was = own[i].is_registered;
            own[i].is_registered = true;
        }
    return was;
}

static int forward_of(int32_t tgid, uint64_t id, uint32_t cmd, void *outer, void *params,
                      uint32_t params_bytes, uint64_t aux, int *got)
{
    uint32_t bytes = RM_SIZE(cmd);
    int e;

    request = (struct sim_request){
        .op = SIM_IOCTL, .cmd = cmd, .file = id, .aux_file = aux, .tgid = tgid, .outer_bytes = bytes};
    request.params_bytes = params_bytes;
    memcpy(request.payload, outer, bytes);
    if (params_bytes)
        memcpy(request.payload + bytes, params, params_bytes);
    if ((e = ask(bytes + params_bytes, got)) < 0)
        return e;
    memcpy(outer, reply.payload, bytes);
    if (params_bytes)
        memcpy(params, reply.payload + bytes, reply.params_bytes);
    return 0;
}

static int forward(uint64_t id, uint32_t cmd, void *outer, void *params, uint32_t params_bytes, uint64_t aux,
                   int *got)
{
    return forward_of(getpid(), id, cmd, outer, params, params_bytes, aux, got);
}

static void note_device(uint64_t id, const struct rm_alloc_short *a, uint32_t status)
{
    if (a->class_id == NV01_ROOT_CLIENT && !status)
        mig_on_card_client(a->handle);
    if (a->class_id != NV01_DEVICE_0 || status || clients == CLIENTS)
        return;
    client[clients].client = a->root;
    client[clients].device = a->handle;
    client[clients++].file = id;
}

static int duplicate_for_us(struct rm_dup *d)
{
    duplicate[duplicates % DUPLICATES].client = d->client;
    duplicate[duplicates % DUPLICATES].handle = d->handle;
    duplicate[duplicates % DUPLICATES].source_client = d->source_client;
    duplicate[duplicates++ % DUPLICATES].source = d->source_handle;
    d->status = NV_OK;
    return 0;
}

static int map_for_us(struct rm_map_memory *m)
{
    struct rm_map_memory theirs = *m;
    int got = -1;

    m->status = NV_ERR_OBJECT_NOT_FOUND;
    for (int i = 0; i < DUPLICATES; i++)
        for (int k = 0; k < clients; k++) {
            if (duplicate[i].handle != m->memory || client[k].client != duplicate[i].source_client)
                continue;
            theirs.client = client[k].client;
            theirs.device = client[k].device;
            theirs.memory = duplicate[i].source;
            /* The arbiter maps by a client of its own, which is played by the tenant's. */
            forward_of(0, client[k].file, RM_CMD(NV_ESC_RM_MAP_MEMORY, sizeof(theirs)), &theirs, NULL, 0,
                       id_of(m->fd), &got);
            m->status = theirs.status;
        }
    if (got >= 0) {
        dup2(got, m->fd);
        close(got);
    }
    return 0;
}

static bool is_duplicate(const struct rm_free *freed)
{
    for (int i = 0; i < DUPLICATES; i++)
        if (duplicate[i].handle == freed->handle && duplicate[i].client == freed->root)
            return true;
    return false;
}

/* What nvidia-uvm may map is said here too. */
static int share(uint64_t id, uint32_t cmd, struct rm_share *s)
{
    int got, e = forward(id, cmd, s, NULL, 0, 0, &got);

    if (e == 0 && !s->status && s->policy.type == RM_SHARE_TYPE_ALL)
        uvm_on_card_share(s->client, s->handle, !(s->policy.action & RM_SHARE_REVOKE));
    on_card_shares |= 1u << s->policy.type;
    return e;
}

/* The file that a descriptor in the parameters names, which is ours by now; 0: the control has none. */
static uint64_t named_file(const struct rm_control *ctl)
{
    if (ctl->cmd != NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD &&
        ctl->cmd != NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD &&
        ctl->cmd != NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO)
        return 0;
    return id_of(*(const int *)(uintptr_t)ctl->params);
}

/* The driver's own list: compute instance i of GPU instances 3 to 6, i = 0, 1, of all tenants. */
static uint32_t list_instances(const struct rm_control *ctl)
{
    struct rm_active_ids *devices = (void *)(uintptr_t)ctl->params;
    struct rm_gpu_instances *instances = (void *)(uintptr_t)ctl->params;
    struct rm_card_info info[RM_MAX_CARDS];
    int got;

    if (ctl->cmd == NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS) {
        *instances = (struct rm_gpu_instances){.id = {3, 4, 5, 6}, .count = 4};
        return NV_OK;
    }
    forward(own[0].id, RM_CMD(NV_ESC_CARD_INFO, sizeof(info)), info, NULL, 0, 0, &got);
    for (uint32_t i = 0; i < 8; i++) {
        devices->device[i].gpu_id = info[0].gpu_id;
        devices->device[i].gpu_instance = 3 + i / 2;
        devices->device[i].compute_instance = i % 2;
    }
    devices->count = 8;
    return NV_OK;
}

static int serve(int fd, uint32_t cmd, void *arg)
{
    struct rm_alloc_short *a = arg;
    struct rm_control *ctl = arg;
    struct rm_alloc *alloc = arg;
    bool uvm = !RM_SIZE(cmd) || cmd == UVM_INITIALIZE;
    uint64_t id = uvm ? 0 : id_of(fd), aux = 0;
    uint32_t params = 0;
    int got = -1, e;

    if (uvm)
        return uvm_on_card_serve(fd, cmd, arg);
    switch (RM_NR(cmd)) {
    case NV_ESC_RM_ALLOC:
        if (a->class_id == AMPERE_SMC_MONITOR_SESSION) {
            on_card_monitors++;
            return 0;
        }
        if (RM_SIZE(cmd) == sizeof(*alloc) && mig_on_card_subscribes(alloc))
            return 0;
        params = RM_SIZE(cmd) == sizeof(*alloc) ? alloc->params_size : a->params_size;
        params = a->params ? params : 0;
        on_card_memory += a->class_id == NV01_MEMORY_LOCAL_USER || a->class_id == NV01_MEMORY_SYSTEM;
        if (a->class_id == NV50_MEMORY_VIRTUAL && params)
            on_card_virtual_flags = ((const struct rm_memory *)(uintptr_t)a->params)->flags;
        e = forward(id, cmd, arg, (void *)(uintptr_t)a->params, params, 0, &got);
        note_device(id, a, RM_SIZE(cmd) == sizeof(*alloc) ? alloc->status : a->status);
        return e;
    case NV_ESC_RM_CONTROL:
        if (on_card_refuse_control && ctl->cmd == (uint32_t)on_card_refuse_control) {
            ctl->status = NV_ERR_NOT_SUPPORTED;
            return 0;
        }
        if (ctl->cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE && ctl->object == on_card_unschedulable) {
            ctl->status = NV_ERR_INVALID_STATE;
            return 0;
        }
        if (debug_on_card_serves(ctl))
            return 0;
        if (ctl->cmd == RM_CTRL_ENGINE_RUNLIST_BASE) {
            ctl->status = mig_on_card_runlist(ctl->client, (void *)(uintptr_t)ctl->params, ctl->params_size);
            return 0;
        }
        on_card_unscheduled += ctl->cmd == NVA06C_CTRL_CMD_GPFIFO_SCHEDULE &&
                               !*(const uint8_t *)(uintptr_t)ctl->params;
        on_card_exports += ctl->cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD;
        on_card_disabled += ctl->cmd == NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS &&
                            *(const uint8_t *)(uintptr_t)ctl->params;
        /* The firmware answers what has no name: nothing that a simulated card is asked. */
        if (ctl->cmd & FIRMWARES && ctl->params_size) {
            memset((void *)(uintptr_t)ctl->params, 0x5a, ctl->params_size);
            ctl->status = NV_OK;
            return 0;
        }
        if (mig_on_card_wrong_size(ctl)) {
            ctl->status = NV_ERR_INVALID_ARGUMENT;
            return 0;
        }
        e = forward(id, cmd, arg, (void *)(uintptr_t)ctl->params, ctl->params_size, named_file(ctl), &got);
        /* The card has an object of another class in its place, and none where RM has none. */
        if (mig_on_card_asks_instance(ctl) && ctl->status == NV_ERR_NOT_SUPPORTED)
            ctl->status = NV_OK;
        if (ctl->cmd == NV0000_CTRL_CMD_GPU_GET_ACTIVE_DEVICE_IDS ||
            ctl->cmd == NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS)
            ctl->status = list_instances(ctl);
        return e;
    case NV_ESC_RM_DUP_OBJECT:
        if (mig_on_card_ours(((struct rm_dup *)arg)->client) &&
            ((struct rm_dup *)arg)->source_client != ((struct rm_dup *)arg)->source_handle)
            return duplicate_for_us(arg);
        if (on_card_keeps_clients) {
            ((struct rm_dup *)arg)->status = NV_ERR_INVALID_STATE;
            return 0;
        }
        break;
    case NV_ESC_RM_MAP_MEMORY:
        if (mig_on_card_ours(((struct rm_map_memory *)arg)->client))
            return map_for_us(arg);
        return -EPERM; /* the driver lets only the client's own process map */
    case NV_ESC_RM_FREE:
        if (mig_on_card_ours(((struct rm_free *)arg)->root)) {
            if (!mig_on_card_freed(((struct rm_free *)arg)->root, ((struct rm_free *)arg)->handle) &&
                !is_duplicate(arg))
                break;
            ((struct rm_free *)arg)->status = NV_OK;
            return 0;
        }
        /* As RM ends a subscription: by its number, in the process that calls. */
        if (on_card_closes >= 0)
            close(on_card_closes);
        break;
    case NV_ESC_REGISTER_FD:
        if (is_registered(id))
            return 0;
        aux = id_of(((struct rm_register_fd *)arg)->ctl_fd);
        break;
    default:
        break;
    }
    if (on_card_refuse && RM_NR(cmd) == (uint32_t)on_card_refuse) {
        *(RM_NR(cmd) == NV_ESC_RM_SHARE ? &((struct rm_share *)arg)->status
                                        : &((struct rm_free *)arg)->status) = NV_ERR_NOT_SUPPORTED;
        return 0;
    }
    if (RM_NR(cmd) == NV_ESC_RM_SHARE)
        return share(id, cmd, arg);
    return forward(id, cmd, arg, NULL, 0, aux, &got);
}

/* The card's own end of what stands for a file of the driver: no process that hides the other has it. */
static bool is_the_cards_end(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
}

static int call_card(int fd, uint32_t cmd, void *arg)
{
    int e;

    if (is_the_cards_end(fd))
        return -ENOTTY;
    pthread_mutex_lock(&on_card_lock);
    death_on_card(cmd, arg, false);
    e = serve(fd, cmd, arg);
    death_on_card(cmd, arg, true);
    pthread_mutex_unlock(&on_card_lock);
    return e;
}

int nvidia_classify(const struct stat *st, uint32_t uvm_major, struct nvidia_node *out)
{
    return classify(st, uvm_major, out);
}

uint32_t nvidia_major_of(const char *majors_path, const char *name)
{
    (void)majors_path;
    (void)name;
    return 0;
}

const struct nvidia_host nvidia_host = {
    .dev_dir = dev_dir,
    .pci_dir = pci_dir,
    .majors_path = "/nonexistent",
    .minors_path = minors_path,
    .uvm_references_path = references_path,
    .classify = classify,
    .ioctl = call_card,
};
