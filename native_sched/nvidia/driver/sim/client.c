/* The arbiter's own RM client on the simulated card: it asks what the card counts to processes. */
#define _GNU_SOURCE
#include "native_sched/nvidia/driver/samples.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include "private.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int own_call(struct driver *d, uint32_t nr, void *outer, uint32_t bytes, void *params,
                    uint32_t params_bytes, const uint32_t *status)
{
    struct driver_call call = {
        .file = &d->own_file,
        .tgid = getpid(),
        .cmd = RM_CMD(nr, bytes),
        .outer = outer,
        .outer_bytes = bytes,
        .params = params,
        .params_bytes = params_bytes,
    };
    int e = sim_execute(d, &call);

    if (e < 0)
        return e;
    return *status == NV_OK ? 0 : *status == NV_ERR_GPU_IS_LOST ? -ENXIO : -EIO;
}

static int own_alloc(struct driver *d, uint32_t parent, uint32_t class_id, void *params, uint32_t bytes,
                     uint32_t *handle)
{
    struct rm_alloc a = {.root = d->own_client, .parent = parent, .class_id = class_id, .params_size = bytes};
    int e = own_call(d, NV_ESC_RM_ALLOC, &a, sizeof(a), params, bytes, &a.status);

    *handle = a.handle;
    return e;
}

static int own_open(struct driver *d)
{
    if (d->own_fd < 0 && (d->own_fd = sim_open_control(d, &d->own_file.id)) < 0)
        return d->own_fd;
    return own_alloc(d, 0, NV01_ROOT_CLIENT, NULL, 0, &d->own_client);
}

/* Cards have the numbers of their minors here. */
static int own_attach(struct driver *d, uint32_t minor)
{
    struct rm_device device = {.id = minor};
    struct rm_subdevice subdevice = {.id = 0};
    int e = d->own_client ? 0 : own_open(d);

    if (e < 0 || d->own_subdevice[minor])
        return e;
    if ((e = own_alloc(d, d->own_client, NV01_DEVICE_0, &device, sizeof(device), &d->own_device[minor])) < 0)
        return e;
    return own_alloc(d, d->own_device[minor], NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice),
                     &d->own_subdevice[minor]);
}

void sim_release(struct driver *d, uint32_t minor, bool released)
{
    struct rm_free f = {.handle = 0};

    pthread_mutex_lock(&d->own);
    d->released[minor] = released;
    if (released) {
        f.root = f.parent = d->own_client;
        f.handle = d->own_device[minor];
        d->own_device[minor] = d->own_subdevice[minor] = 0;
    }
    pthread_mutex_unlock(&d->own);
    if (f.handle)
        (void)own_call(d, NV_ESC_RM_FREE, &f, sizeof(f), NULL, 0, &f.status);
}

static int own_control(struct driver *d, uint32_t minor, uint32_t cmd, void *params, uint32_t bytes)
{
    struct rm_control ctl = {.cmd = cmd, .params_size = bytes};
    int e;

    if (minor >= MAX_CARDS)
        return -ENODEV;
    pthread_mutex_lock(&d->own);
    e = d->released[minor] ? -ENXIO : own_attach(d, minor);
    ctl.client = d->own_client;
    ctl.object = d->own_subdevice[minor];
    pthread_mutex_unlock(&d->own);
    return e < 0 ? e : own_call(d, NV_ESC_RM_CONTROL, &ctl, sizeof(ctl), params, bytes, &ctl.status);
}

/* As nvidia_client_exists(): the card looks for the client before it refuses to duplicate one. */
int sim_client_exists(struct driver *d, uint32_t client)
{
    struct rm_dup dup = {.source_client = client, .source_handle = client};
    int e;

    pthread_mutex_lock(&d->own);
    e = d->own_client ? 0 : own_open(d);
    dup.client = dup.parent = d->own_client;
    pthread_mutex_unlock(&d->own);
    if (e == 0 && (e = own_call(d, NV_ESC_RM_DUP_OBJECT, &dup, sizeof(dup), NULL, 0, &dup.status)) == -EIO)
        return dup.status != NV_ERR_INVALID_OBJECT_HANDLE;
    return e;
}

int sim_pid_info(struct driver *d, uint32_t minor, struct rm_pid_info *info)
{
    return own_control(d, minor, NV2080_CTRL_CMD_GPU_GET_PID_INFO, info, sizeof(*info));
}

int sim_pids(struct driver *d, uint32_t minor, struct rm_pids *out)
{
    *out = (struct rm_pids){.id = NV20_SUBDEVICE_0};
    return own_control(d, minor, NV2080_CTRL_CMD_GPU_GET_PIDS, out, sizeof(*out));
}

int sim_samples(struct driver *d, const struct card *card, const struct rm_table *rm,
                struct card_samples *out)
{
    struct samples s;
    int e;

    samples_ask(&s, rm);
    e = own_control(d, card->minor, NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, s.params,
                    s.bytes);
    return e < 0 ? e : samples_newest(&s, rm, out);
}

/* It has the other end of every file. */
static bool is_the_card(const struct driver *d, pid_t pid)
{
    struct ucred who;
    socklen_t n = sizeof(who);

    return getsockopt(d->events, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.pid == pid;
}

bool sim_known_file(struct driver *d, pid_t pid, int dir, const char *fd, struct open_file *out)
{
    struct stat st;

    return fstatat(dir, fd, &st, 0) == 0 && files_find(d->files, st.st_dev, st.st_ino, out) &&
           !is_the_card(d, pid);
}
