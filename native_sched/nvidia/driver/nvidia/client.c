#define _GNU_SOURCE
#include "client.h"
#include "base/scoped.h"
#include "native_sched/nvidia/driver/rm_control.h"
#include "native_sched/nvidia/rm/channel.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_HANDLE = 0x6d670001 };

/* What the driver says where an engine has no runlist: the last few values. */
#define RUNLIST_ERRORS 0xfffffff0u

static int rm(const struct nvidia_client *c, int fd, uint32_t nr, void *outer, uint32_t bytes,
              const uint32_t *status)
{
    int e = c->host->ioctl(fd, RM_CMD(nr, bytes), outer);

    if (e < 0)
        return e;
    return *status == NV_OK ? 0 : *status == NV_ERR_GPU_IS_LOST ? -ENXIO : -EIO;
}

uint32_t nvidia_client_handle(struct nvidia_client *c)
{
    return atomic_fetch_add(&c->next_handle, 1);
}

int nvidia_client_alloc(const struct nvidia_client *c, uint32_t parent, uint32_t *handle, uint32_t class_id,
                        void *params, uint32_t bytes)
{
    struct rm_alloc a = {
        .root = c->root,
        .parent = parent,
        .handle = *handle,
        .class_id = class_id,
        .params = (uintptr_t)params,
        .params_size = bytes,
    };
    int e = rm(c, c->ctl, NV_ESC_RM_ALLOC, &a, sizeof(a), &a.status);

    *handle = a.handle;
    return e;
}

int nvidia_client_control(const struct nvidia_client *c, uint32_t object, uint32_t cmd, void *params,
                          uint32_t bytes)
{
    struct rm_control ctl = {
        .client = c->root,
        .object = object,
        .cmd = cmd,
        .params = (uintptr_t)params,
        .params_size = bytes,
    };

    return rm(c, c->ctl, NV_ESC_RM_CONTROL, &ctl, sizeof(ctl), &ctl.status);
}

int nvidia_client_free(const struct nvidia_client *c, uint32_t parent, uint32_t handle)
{
    struct rm_free f = {.root = c->root, .parent = parent, .handle = handle};

    return rm(c, c->ctl, NV_ESC_RM_FREE, &f, sizeof(f), &f.status);
}

int nvidia_client_dup(const struct nvidia_client *c, struct rm_dup *dup)
{
    dup->client = c->root;
    return c->host->ioctl(c->ctl, RM_CMD(NV_ESC_RM_DUP_OBJECT, sizeof(*dup)), dup);
}

/* RM looks up the client whose object is to be duplicated, then the object, and refuses in the end to
 * duplicate a client (serverCopyResource() in rs_server.c; cliresCanCopy is resCanCopy_IMPL: no). It does not
 * check the file. */
int nvidia_client_exists(const struct nvidia_client *c, uint32_t client)
{
    struct rm_dup dup = {
        .parent = c->root,
        .source_client = client,
        .source_handle = client,
    };
    int e = nvidia_client_dup(c, &dup);

    if (e < 0)
        return e;
    return dup.status != NV_ERR_INVALID_OBJECT_HANDLE && dup.status != NV_ERR_INVALID_CLIENT &&
           dup.status != NV_ERR_OBJECT_NOT_FOUND;
}

/* A control that every root client answers on its own file alone, and that reveals nothing. */
bool nvidia_client_answers(const struct nvidia_client *c, int fd, uint32_t client)
{
    struct rm_gpu_ids ids = {0};
    struct rm_control ctl = {
        .client = client,
        .object = client,
        .cmd = NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS,
        .params = (uintptr_t)&ids,
        .params_size = sizeof(ids),
    };

    return rm(c, fd, NV_ESC_RM_CONTROL, &ctl, sizeof(ctl), &ctl.status) == 0;
}

/* A new open file of a card's node or, with NULL, of the control node. */
static int nvidia_client_node(const struct nvidia_client *c, const struct own_card *card)
{
    struct rm_register_fd reg = {.ctl_fd = c->ctl};
    char path[256];
    int fd, e;

    if (card)
        snprintf(path, sizeof(path), "%s/nvidia%u", c->host->dev_dir, card->minor);
    else
        snprintf(path, sizeof(path), "%s/nvidiactl", c->host->dev_dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (!card || (e = c->host->ioctl(fd, RM_CMD(NV_ESC_REGISTER_FD, sizeof(reg)), &reg)) == 0)
        return fd;
    close(fd);
    return e;
}

/* A file has one mapping at a time. */
int nvidia_client_map(const struct nvidia_client *c, const struct own_card *card, struct rm_map_memory *what,
                      void **at)
{
    scoped_fd int fd = nvidia_client_node(c, card);
    int e;

    if (fd < 0)
        return fd;
    what->flags = RM_MAP_READ_ONLY;
    what->fd = fd;
    what->status = NV_OK;
    e = c->host->ioctl(c->ctl, RM_CMD(NV_ESC_RM_MAP_MEMORY, sizeof(*what)), what);
    if (e < 0 || what->status != NV_OK)
        return e < 0 ? e : rm_refusal(what->status);
    *at = mmap(NULL, what->length, PROT_READ, MAP_SHARED, fd, 0);
    return *at == MAP_FAILED ? -errno : 0;
}

/* The object ends with the device. */
int nvidia_client_registers(struct nvidia_client *c, const struct own_card *card, size_t bytes, void **at)
{
    struct rm_map_memory m = {.client = c->root, .device = card->device, .length = bytes};
    int e;

    m.memory = nvidia_client_handle(c);
    e = nvidia_client_alloc(c, card->device, &m.memory, NV01_MEMORY_LOCAL_PRIVILEGED, NULL, 0);
    return e < 0 ? e : nvidia_client_map(c, card, &m, at);
}

/* shares: the client whose address space is the device's own; 0: one that all such devices have. */
static int attach(struct nvidia_client *c, struct own_card *card, uint32_t shares)
{
    struct rm_id_info info = {.gpu_id = card->gpu_id};
    struct rm_device device = {.client_share = shares};
    struct rm_subdevice subdevice = {.id = 0};
    uint32_t device_handle = nvidia_client_handle(c), subdevice_handle = nvidia_client_handle(c);
    int e;

    if ((card->node = nvidia_client_node(c, card)) < 0)
        return card->node;
    if ((e = nvidia_client_control(c, c->root, NV0000_CTRL_CMD_GPU_GET_ID_INFO, &info, sizeof(info))) < 0)
        return e;
    device.id = info.device_instance;
    subdevice.id = info.subdevice_instance;
    if ((e = nvidia_client_alloc(c, c->root, &device_handle, NV01_DEVICE_0, &device, sizeof(device))) < 0)
        return e;
    card->device = device_handle;
    if ((e = nvidia_client_alloc(c, device_handle, &subdevice_handle, NV20_SUBDEVICE_0, &subdevice,
                                 sizeof(subdevice))) < 0)
        return e;
    card->device_instance = info.device_instance;
    card->subdevice = subdevice_handle; /* from here on other threads see it */
    return 0;
}

/* Lines of "NAME MINOR", a minor of /dev/nvidia-caps each. -ENOENT: none of that name. */
static int capability_minor(const struct nvidia_host *host, const char *name)
{
    FILE *f = fopen(host->minors_path, "re");
    char line[128], found[96];
    int minor, result = -ENOENT;

    if (!f)
        return -ENOENT;
    while (result < 0 && fgets(line, sizeof(line), f))
        if (sscanf(line, "%95s %d", found, &minor) == 2 && !strcmp(found, name))
            result = minor;
    fclose(f);
    return result;
}

int nvidia_client_capability(const struct nvidia_host *host, const char *name)
{
    int minor = capability_minor(host, name), fd;
    char path[300];

    if (minor < 0)
        return minor;
    snprintf(path, sizeof(path), "%s/nvidia-caps/nvidia-cap%d", host->dev_dir, minor);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* With MIG, GET_PID_INFO reports all instances only to a client with a session of this kind. Without MIG it
 * is not needed; where it is refused, the audit fails. */
static void watch_instances(struct nvidia_client *c)
{
    struct rm_mig_monitor monitor = {.descriptor = 0};
    uint32_t handle = nvidia_client_handle(c);
    scoped_fd int fd = nvidia_client_capability(c->host, "monitor");

    if (fd < 0)
        return;
    monitor.descriptor = (uint32_t)fd;
    (void)nvidia_client_alloc(c, c->root, &handle, AMPERE_SMC_MONITOR_SESSION, &monitor, sizeof(monitor));
}

static bool is_known(const struct nvidia_client *c, const struct rm_card_info *info)
{
    for (uint32_t i = 0; i < c->cards; i++)
        if (c->card[i].minor == info->minor && c->card[i].gpu_id == info->gpu_id)
            return true;
    return false;
}

/* Lists the driver's GPUs without attaching them. */
static int find_cards(struct nvidia_client *c)
{
    struct rm_card_info info[RM_MAX_CARDS] = {{.valid = 0}};
    int e = c->host->ioctl(c->ctl, RM_CMD(NV_ESC_CARD_INFO, sizeof(info)), info);

    if (e < 0)
        return e;
    for (uint32_t i = 0; i < RM_MAX_CARDS && c->cards < MAX_CARDS; i++) {
        struct own_card *card = &c->card[c->cards];

        if (!info[i].valid || is_known(c, &info[i]))
            continue;
        *card = (struct own_card){
            .minor = info[i].minor,
            .gpu_id = info[i].gpu_id,
            .pci_domain = info[i].pci_domain,
            .pci_bus = info[i].pci_bus,
            .pci_slot = info[i].pci_slot,
            .node = -1,
        };
        c->cards++;
    }
    return 0;
}

static int open_root(struct nvidia_client *c, const struct nvidia_host *host)
{
    *c = (struct nvidia_client){.host = host, .ctl = -1};
    atomic_init(&c->next_handle, FIRST_HANDLE);
    if ((c->ctl = nvidia_client_node(c, NULL)) < 0)
        return c->ctl;
    return nvidia_client_alloc(c, 0, &c->root, NV01_ROOT_CLIENT, NULL, 0);
}

int nvidia_client_open(struct nvidia_client *c, const struct nvidia_host *host)
{
    int e = open_root(c, host);

    if (e < 0)
        nvidia_client_close(c);
    else
        watch_instances(c);
    return e;
}

int nvidia_client_open_on(struct nvidia_client *c, const struct nvidia_host *host,
                          const struct own_card *card)
{
    int e = open_root(c, host);

    if (e == 0) {
        c->card[c->cards++] = (struct own_card){.minor = card->minor, .gpu_id = card->gpu_id, .node = -1};
        e = attach(c, &c->card[0], c->root);
    }
    if (e < 0)
        nvidia_client_close(c);
    return e;
}

/* The last close of the control node frees all that the client has. */
void nvidia_client_close(struct nvidia_client *c)
{
    for (uint32_t i = 0; i < c->cards; i++)
        scoped_close(&c->card[i].node);
    scoped_close(&c->ctl);
    c->cards = 0;
    c->ctl = -1;
}

const struct own_card *nvidia_client_card(const struct nvidia_client *c, uint32_t minor)
{
    /* A minor of a card that is gone may be another's by now: the last one counts. */
    for (uint32_t i = c->cards; i--;)
        if (c->card[i].minor == minor && c->card[i].subdevice)
            return &c->card[i];
    return NULL;
}

static struct own_card *listed(struct nvidia_client *c, uint32_t minor)
{
    for (uint32_t i = c->cards; i--;)
        if (c->card[i].minor == minor)
            return &c->card[i];
    return NULL;
}

/* The driver is asked for its cards first: another one may have the minor by now. */
const struct own_card *nvidia_client_attach(struct nvidia_client *c, uint32_t minor)
{
    struct own_card *card;

    if (nvidia_client_card(c, minor))
        return nvidia_client_card(c, minor);
    if ((c->ctl < 0 && nvidia_client_open(c, c->host) < 0) || find_cards(c) < 0 || !(card = listed(c, minor)))
        return NULL;
    if (attach(c, card, 0) == 0)
        return card;
    nvidia_client_detach(c, minor);
    return NULL;
}

/* RM's objects by name and before the file: with the last close of its node RM shuts the card down. */
void nvidia_client_detach(struct nvidia_client *c, uint32_t minor)
{
    for (uint32_t i = 0; i < c->cards; i++) {
        struct own_card *card = &c->card[i];
        uint32_t device = card->device;

        if (card->minor != minor || card->node < 0)
            continue;
        card->device = card->subdevice = 0;
        if (device)
            (void)nvidia_client_free(c, c->root, device);
        scoped_close(&card->node);
        card->node = -1;
    }
}

/* Its objects go with the file. */
void nvidia_client_rest(struct nvidia_client *c)
{
    for (uint32_t i = 0; i < c->cards; i++)
        if (c->card[i].node >= 0)
            return;
    nvidia_client_close(c);
}

/* One engine a call: one that the card or the subscribed instance lacks fails the whole call
 * (subdeviceCtrlCmdGpuGetEngineRunlistPriBase() in subdevice_ctrl_gpu_kernel.c). RM takes the size of its own
 * version alone, and no two are equal, so sizes are tried. */
static uint32_t runlist_of(const struct nvidia_client *c, const struct own_card *card, uint32_t engine)
{
    for (size_t i = 0; i < sizeof(rm_runlist_shapes) / sizeof(*rm_runlist_shapes); i++) {
        uint32_t list[RM_RUNLIST_LISTS * RM_RUNLIST_ENGINES] = {engine};
        const struct rm_runlist_shape *shape = &rm_runlist_shapes[i];
        uint32_t bytes = shape->engines * shape->lists * (uint32_t)sizeof(*list);

        if (nvidia_client_control(c, card->subdevice, RM_CTRL_ENGINE_RUNLIST_BASE, list, bytes) == 0)
            return list[shape->engines] < RUNLIST_ERRORS ? list[shape->engines] : 0;
    }
    return 0;
}

/* Copy engines are the tenth and those from COPY10 on (NV2080_ENGINE_TYPE_COPY(), cl2080_notification.h). */
static bool is_polled(uint32_t engine)
{
    return engine == RM_ENGINE_GRAPHICS || engine - RM_ENGINE_COPY0 < 10 || engine - RM_ENGINE_COPY10 < 10 ||
           rm_is_video_engine(engine);
}

uint32_t nvidia_client_runlists(const struct nvidia_client *c, const struct own_card *card,
                                struct runlist *out, uint32_t max)
{
    uint32_t n = 0, engine, base, at;

    for (engine = RM_ENGINE_GRAPHICS; engine < 64; engine++) {
        if (!is_polled(engine) || !(base = runlist_of(c, card, engine)))
            continue;
        for (at = 0; at < n && out[at].base != base;)
            at++;
        if (at == max)
            continue;
        if (at == n)
            out[n++] = (struct runlist){.base = base};
        out[at].engines |= engine_bit(engine);
        out[at].count++;
    }
    return n;
}

const struct chip *nvidia_client_chip(const struct nvidia_client *c, const struct own_card *card)
{
    struct rm_arch info = {.architecture = 0};

    if (nvidia_client_control(c, card->subdevice, NV2080_CTRL_CMD_MC_GET_ARCH_INFO, &info, sizeof(info)) < 0)
        return NULL;
    return chip_find(info.architecture, info.implementation);
}
