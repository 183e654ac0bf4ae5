/* nvidia-uvm for the engine's tests: it plays what the simulated nvidia-uvm (sim/card/uvm.c) never does. A
 * question that stays unanswered, an UNREGISTER_CHANNEL or PAGEABLE_MEM_ACCESS that fails, a call that lands
 * on another file than the one it was made on, and an engine that died in the middle of a call; and it says
 * what UVM retains and may duplicate, which the simulated card does not tell. */
#define _GNU_SOURCE
#include "uvm_on_card.h"
#include "death_on_card.h"

#include "../../native_sched/engine/engine_private.h"
#include "../../native_sched/nvidia/boundary/call/page.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANGES = 64, SHARED = 16, MAP_EXTERNAL_BYTES = 9264 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Ranges for external mappings, of all UVM files together: what is mapped in them is not UVM's to say
 * here. */
static struct uvm_range range[RANGES] ON_CARD_KEPT;
static int ranges ON_CARD_KEPT;

/* Objects that any caller may duplicate. */
static struct {
    uint32_t client, handle;
} shared[SHARED] ON_CARD_KEPT;

/* Channels that UVM retains, by the descriptor of the file on which they are registered. */
enum { RETAINED = 64 };
static struct retained_channel {
    pid_t pid; /* 0: a free entry */
    int fd;
    uint32_t client, channel;
} retained[RETAINED] ON_CARD_KEPT;
uint32_t on_card_unregistered ON_CARD_KEPT;
int on_card_uvm_error;
int on_card_pageable_error; /* PAGEABLE_MEM_ACCESS fails with this errno; 0: it does not */

/* Address spaces that are registered, by their numbers. */
static struct {
    uint32_t client, handle; /* client 0: free */
} vaspace[UVM_ON_CARD_SPACES] ON_CARD_KEPT;

/* Whether a file is initialised, and what comes of an address space, is answered when a byte has come, after
 * one has gone out; -1: at once. */
int on_card_asked = -1, on_card_answers = -1;
uint32_t on_card_mapped ON_CARD_KEPT; /* the memory of the last external mapping, by its handle */

static bool initialized(int fd)
{
    int said = fcntl(fd, F_GETSIG);

    return said >= UVM_ON_CARD_INITIALIZED;
}

static uint64_t flags_of(int fd)
{
    return (uint64_t)(fcntl(fd, F_GETSIG) - UVM_ON_CARD_INITIALIZED) & UVM_ON_CARD_FLAGS;
}

static int uvm_initialize_again(int fd, struct uvm_initialize *u)
{
    if (!initialized(fd))
        abort(); /* it would be with the arbiter's memory */
    u->status = u->flags == flags_of(fd) ? NV_OK : NV_ERR_INVALID_ARGUMENT;
    return 0;
}

static int pageable(int fd, struct uvm_pageable *u)
{
    if (on_card_pageable_error)
        return on_card_pageable_error;
    u->status = initialized(fd) ? NV_OK : NV_ERR_ILLEGAL_ACTION;
    u->access = initialized(fd) && !(flags_of(fd) & UVM_INIT_DISABLE_HMM);
    return 0;
}

void uvm_on_card_begin(void)
{
    memset(range, 0, sizeof(range));
    memset(shared, 0, sizeof(shared));
    memset(retained, 0, sizeof(retained));
    memset(vaspace, 0, sizeof(vaspace));
    on_card_unregistered = 0;
    on_card_uvm_error = on_card_pageable_error = 0;
    ranges = 0;
    on_card_asked = on_card_answers = -1;
    on_card_mapped = 0;
}

/* CREATE_EXTERNAL_RANGE, which its caller makes. */
void on_card_range(uint64_t base, uint64_t length)
{
    range[ranges++ % RANGES] = (struct uvm_range){base, length};
}

static bool same_file(pid_t pid, int theirs, int ours)
{
    return syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, (unsigned long)ours, (unsigned long)theirs) == 0;
}

/* Who has the file, and by which descriptor: a file of nvidia-uvm has no other name here. */
static bool holder_of(int file, pid_t *pid, int *fd)
{
    static pid_t last_pid;
    static int last_fd;
    const struct dirent *entry;
    char path[64], target[64];
    DIR *all;

    *pid = last_pid;
    *fd = last_fd;
    if (*pid && same_file(*pid, *fd, file))
        return true;
    all = opendir("/proc");
    while ((entry = readdir(all))) {
        *pid = (pid_t)atoi(entry->d_name);
        for (*fd = 3; *pid > 0 && *pid != getpid() && *fd < 256; ++*fd) {
            ssize_t n;

            snprintf(path, sizeof(path), "/proc/%d/fd/%d", *pid, *fd);
            n = readlink(path, target, sizeof(target) - 1);
            if (n == (ssize_t)strlen("/dev/null") && !memcmp(target, "/dev/null", (size_t)n) &&
                same_file(*pid, *fd, file)) {
                closedir(all);
                last_pid = *pid;
                last_fd = *fd;
                return true;
            }
        }
    }
    closedir(all);
    return false;
}

/* The number of the address space that is registered on the file; -1: there is none. */
static int vaspace_on(int fd)
{
    return initialized(fd) ? (fcntl(fd, F_GETSIG) - UVM_ON_CARD_INITIALIZED) / UVM_ON_CARD_SPACE - 1 : -1;
}

static uint32_t put_space(int fd, uint32_t of, uint32_t handle)
{
    int i = 0;

    if (!initialized(fd))
        return NV_ERR_ILLEGAL_ACTION;
    if (vaspace_on(fd) >= 0)
        return NV_ERR_INVALID_DEVICE;
    for (int k = 0; k < UVM_ON_CARD_SPACES; k++)
        if (vaspace[k].client == of && vaspace[k].handle == handle)
            return NV_ERR_NOT_SUPPORTED;
    while (i < UVM_ON_CARD_SPACES && vaspace[i].client)
        i++;
    if (i == UVM_ON_CARD_SPACES || fcntl(fd, F_SETSIG, fcntl(fd, F_GETSIG) + (i + 1) * UVM_ON_CARD_SPACE) < 0)
        abort();
    vaspace[i].client = of;
    vaspace[i].handle = handle;
    return NV_OK;
}

void on_card_closed(pid_t pid, int fd)
{
    pthread_mutex_lock(&lock);
    for (struct retained_channel *r = retained; r < retained + RETAINED; r++)
        if (r->pid == pid && r->fd == fd)
            r->pid = 0;
    pthread_mutex_unlock(&lock);
}

/* With a client its address spaces have ended. */
void on_card_client_ended(uint32_t of)
{
    for (int k = 0; k < UVM_ON_CARD_SPACES; k++)
        if (vaspace[k].client == of)
            vaspace[k].client = 0;
}

int on_card_retained(void)
{
    int n = 0;

    pthread_mutex_lock(&lock);
    for (const struct retained_channel *r = retained; r < retained + RETAINED; r++)
        n += r->pid != 0;
    pthread_mutex_unlock(&lock);
    return n;
}

int on_card_retains(uint32_t of, uint32_t channel)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (const struct retained_channel *r = retained; r < retained + RETAINED; r++)
        found |= r->pid && r->client == of && r->channel == channel;
    pthread_mutex_unlock(&lock);
    return found;
}

/* As before 590.44. */
static int unregister(int fd, void *arg)
{
    struct {
        uint8_t gpu[16];
        uint32_t client, channel, status;
    } *u = arg;

    if (on_card_uvm_error)
        return on_card_uvm_error;
    u->status = NV_ERR_INVALID_CHANNEL;
    pthread_mutex_lock(&lock);
    for (struct retained_channel *r = retained; r < retained + RETAINED; r++) {
        if (!r->pid || r->client != u->client || r->channel != u->channel || !same_file(r->pid, r->fd, fd))
            continue;
        r->pid = 0;
        on_card_unregistered++;
        u->status = NV_OK;
        break;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

void uvm_on_card_share(uint32_t client, uint32_t handle, bool now)
{
    for (int i = 0; i < SHARED; i++)
        if (now ? !shared[i].client : shared[i].client == client && shared[i].handle == handle) {
            shared[i].client = now ? client : 0;
            shared[i].handle = handle;
            return;
        }
}

uint32_t on_card_shared(void)
{
    uint32_t n = 0;

    for (int i = 0; i < SHARED; i++)
        n += shared[i].client != 0;
    return n;
}

static struct uvm_range *range_of(uint64_t at)
{
    for (int i = 0; i < RANGES; i++)
        if (at >= range[i].base && at < range[i].base + range[i].length)
            return &range[i];
    return NULL;
}

/* By another process than the client's own, so only what is shared with all. */
static bool may_have(uint32_t client, uint32_t handle)
{
    for (int i = 0; i < SHARED; i++)
        if (shared[i].client == client && shared[i].handle == handle)
            return true;
    return false;
}

static uint32_t map_external(const uint8_t *params)
{
    const struct uvm_map_external_begin *begin = (const void *)params;
    const struct uvm_map_external_gpu *gpu = (const void *)(params + sizeof(*begin));
    const struct uvm_map_external_end *end = (const void *)(params + MAP_EXTERNAL_BYTES - sizeof(*end));
    const struct uvm_range *of = range_of(begin->range.base);

    if (!of || begin->range.base + begin->range.length > of->base + of->length)
        return NV_ERR_INVALID_ADDRESS;
    for (uint64_t i = 0; i < end->gpus; i++)
        if (!gpu[i].gpu[0])
            return NV_ERR_INVALID_DEVICE;
    if (!may_have(end->client, end->memory))
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    on_card_mapped = end->memory;
    return NV_OK;
}

static void wait_to_answer(void)
{
    char byte = 0;

    if (on_card_answers >= 0 && (write(on_card_asked, &byte, 1) != 1 || read(on_card_answers, &byte, 1) != 1))
        abort();
}

static uint32_t register_space(int fd, const struct uvm_register_gpu_vaspace *r)
{
    uint32_t status = !r->gpu[0]                         ? NV_ERR_INVALID_DEVICE
                      : !may_have(r->client, r->vaspace) ? NV_ERR_INSUFFICIENT_PERMISSIONS
                                                         : put_space(fd, r->client, r->vaspace);

    wait_to_answer();
    return status;
}

/* By another process than the client's own; where the channel's address space is, which is the only one of
 * its client's. */
static uint32_t uvm_register_channel_on(int fd, const struct uvm_register_channel *r)
{
    int at = vaspace_on(fd), i = 0;
    bool lent = false;

    if (!initialized(fd))
        return NV_ERR_ILLEGAL_ACTION;
    for (int k = 0; k < SHARED; k++)
        lent |= shared[k].client && shared[k].client == r->client;
    for (int k = 0; k < UVM_ON_CARD_SPACES; k++)
        if (vaspace[k].client == r->client && k != at)
            return NV_ERR_INVALID_CHANNEL;
    if (!lent)
        return NV_ERR_INSUFFICIENT_PERMISSIONS;
    for (int k = 0; k < RETAINED; k++)
        if (retained[k].pid && retained[k].client == r->client && retained[k].channel == r->channel &&
            same_file(retained[k].pid, retained[k].fd, fd))
            return NV_ERR_INVALID_CHANNEL;
    while (i < RETAINED && retained[i].pid)
        i++;
    if (i == RETAINED)
        return NV_ERR_NO_MEMORY;
    retained[i] = (struct retained_channel){.client = r->client, .channel = r->channel};
    if (!holder_of(fd, &retained[i].pid, &retained[i].fd))
        abort();
    return NV_OK;
}

static uint32_t take_channel(int fd, const struct uvm_register_channel *r)
{
    uint32_t status;

    pthread_mutex_lock(&lock);
    status = on_card_uvm_error ? NV_ERR_NO_MEMORY : uvm_register_channel_on(fd, r);
    pthread_mutex_unlock(&lock);
    wait_to_answer();
    return status;
}

static uint32_t look(int fd)
{
    wait_to_answer();
    return initialized(fd) ? NV_ERR_INVALID_ADDRESS : NV_ERR_ILLEGAL_ACTION;
}

/* Any file of nvidia-uvm that the tenant has called on. */
uint64_t on_card_uvm_file(struct mgpu_engine *e, uint64_t tenant)
{
    struct open_file file = {.id = 0};

    while (files_after(&e->files, tenant_by_id(e, tenant), file.id, &file) && file.kind != NODE_UVM)
        ;
    return file.kind == NODE_UVM ? file.id : 0;
}

/* As if the previous mgpud had died in a call of nvidia-uvm that now waits on the tenant's listener: between
 * the share of its object and its end. What its caller said: `said`. */
int on_card_died_lending(const char *journal, uint64_t tenant, int listener, uint64_t file,
                         uint64_t client_file, uint32_t cmd, uint32_t client, uint32_t handle,
                         const void *said, uint32_t bytes)
{
    int folder = open(journal, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct store page;
    struct inflight *k;
    char name[STORE_NAME_MAX];

    snprintf(name, sizeof(name), "listener-%llu", (unsigned long long)tenant);
    if (folder < 0 || store_open(&page, folder, name, &listener_layout) < 0)
        return -1;
    k = &((struct listener_page *)(void *)page.at)->inflight;
    k->req = (struct seccomp_notif){0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &k->req) < 0)
        return -errno;
    memcpy(k->before, said, bytes);
    k->file = file;
    k->params_bytes = 0;
    k->begun = false;
    k->was = (struct inflight_intent){
        .what = INTENT_UVM, .client = cmd, .parent = client, .handle = handle, .file = client_file};
    k->check = store_check(&k->was, sizeof(k->was));
    k->stage = INFLIGHT_INTENDED;
    uvm_on_card_share(client, handle, true);
    store_close(&page);
    return close(folder);
}

/* Commands that the arbiter makes. A GPU is one whose name does not begin with 0. */
int uvm_on_card_serve(int fd, uint32_t cmd, void *arg)
{
    struct uvm_unmap_external *unmap = arg;
    struct uvm_range *of = range_of(unmap->range.base);
    uint32_t *freed = (void *)((uint8_t *)arg + 16); /* the status of FREE before 590.44 */

    switch (cmd) {
    case UVM_INITIALIZE:
        return uvm_initialize_again(fd, arg);
    case UVM_PAGEABLE_MEM_ACCESS:
        return pageable(fd, arg);
    case UVM_UNREGISTER_CHANNEL:
        return unregister(fd, arg);
    case UVM_REGISTER_GPU_VASPACE:
        ((struct uvm_register_gpu_vaspace *)arg)->status = register_space(fd, arg);
        return 0;
    case UVM_REGISTER_CHANNEL:
        ((struct uvm_register_channel *)arg)->status = take_channel(fd, arg);
        return 0;
    case UVM_MAP_EXTERNAL_ALLOCATION:
        freed = (void *)((uint8_t *)arg + MAP_EXTERNAL_BYTES - UVM_MAP_EXTERNAL_STATUS_FROM_END);
        *freed = map_external(arg);
        return 0;
    case UVM_FREE:
        *freed = of && of->base == unmap->range.base && of->length == unmap->range.length
                     ? NV_OK
                     : NV_ERR_INVALID_ADDRESS;
        if (*freed == NV_OK)
            *of = (struct uvm_range){0, 0};
        return 0;
    case UVM_UNMAP_EXTERNAL:
        if (!unmap->range.length) {
            unmap->status = look(fd);
            return 0;
        }
        unmap->status = !of || unmap->range.base + unmap->range.length > of->base + of->length
                            ? NV_ERR_INVALID_ADDRESS
                        : !unmap->gpu[0] ? NV_ERR_INVALID_DEVICE
                                         : NV_OK;
        return 0;
    default:
        abort();
    }
}
