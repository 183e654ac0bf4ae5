#define _GNU_SOURCE
#include "uvm_on_card.h"

#include "../../native_sched/boundary/rm_abi.h"
#include <linux/kcmp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANGES = 64, SHARED = 16, MAP_EXTERNAL_BYTES = 9264 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Ranges for external mappings, of all UVM files together: what is mapped in them is not UVM's to say here. */
static struct uvm_range range[RANGES];
static int ranges;

/* Objects that whoever calls may duplicate. */
static struct {
    uint32_t client, handle;
} shared[SHARED];

/* Channels that UVM retains, by the descriptor of the file on which they are registered. */
enum { RETAINED = 64 };
static struct retained_channel {
    pid_t pid; /* 0: a free entry */
    int fd;
    uint32_t client, channel;
} retained[RETAINED];
uint32_t on_card_unregistered;
int on_card_uvm_error;

uint32_t on_card_mapped; /* the memory of the last external mapping, by its handle */

/* Files that are initialised, as above. */
static struct initialized {
    pid_t pid; /* 0: a free entry */
    int fd;
    uint64_t flags;
} initialized[RETAINED];
static int initializeds;

void on_card_initialized(pid_t pid, int fd, uint64_t flags)
{
    pthread_mutex_lock(&lock);
    initialized[initializeds++ % RETAINED] = (struct initialized){pid, fd, flags};
    pthread_mutex_unlock(&lock);
}

/* NULL: it is not. Their processes live, or what is kept open is by another number. */
static const struct initialized *initialized_of(int fd)
{
    for (int i = 0; i < RETAINED; i++)
        if (initialized[i].pid && syscall(SYS_kcmp, getpid(), initialized[i].pid, KCMP_FILE,
                                          (unsigned long)fd, (unsigned long)initialized[i].fd) == 0)
            return &initialized[i];
    return NULL;
}

static int initialize(int fd, struct uvm_initialize *u)
{
    const struct initialized *i = initialized_of(fd);

    if (!i)
        abort(); /* it would be with the arbiter's memory */
    u->status = u->flags == i->flags ? RM_OK : RM_ERR_INVALID_ARGUMENT;
    return 0;
}

static int pageable(int fd, struct uvm_pageable *u)
{
    const struct initialized *i = initialized_of(fd);

    u->status = i ? RM_OK : RM_ERR_ILLEGAL_ACTION;
    u->access = i && !i->flags;
    return 0;
}

void uvm_on_card_begin(void)
{
    memset(initialized, 0, sizeof(initialized));
    memset(range, 0, sizeof(range));
    memset(shared, 0, sizeof(shared));
    memset(retained, 0, sizeof(retained));
    on_card_unregistered = 0;
    on_card_uvm_error = 0;
    ranges = 0;
    on_card_mapped = 0;
}

/* CREATE_EXTERNAL_RANGE, which its caller makes. */
void on_card_range(uint64_t base, uint64_t length)
{
    range[ranges++ % RANGES] = (struct uvm_range){base, length};
}

/* REGISTER_CHANNEL, which its caller makes: of each channel once. */
void on_card_lands(pid_t pid, int fd, uint32_t of, uint32_t channel)
{
    bool again = false;
    int i = 0;

    pthread_mutex_lock(&lock);
    for (int k = 0; k < RETAINED; k++)
        again |= retained[k].pid == pid && retained[k].fd == fd && retained[k].client == of &&
                 retained[k].channel == channel;
    while (i < RETAINED && retained[i].pid)
        i++;
    if (i == RETAINED)
        abort();
    if (!again)
        retained[i] = (struct retained_channel){pid, fd, of, channel};
    pthread_mutex_unlock(&lock);
}

void on_card_closed(pid_t pid, int fd)
{
    pthread_mutex_lock(&lock);
    for (struct retained_channel *r = retained; r < retained + RETAINED; r++)
        if (r->pid == pid && r->fd == fd)
            r->pid = 0;
    pthread_mutex_unlock(&lock);
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
    u->status = RM_ERR_INVALID_CHANNEL;
    pthread_mutex_lock(&lock);
    for (struct retained_channel *r = retained; r < retained + RETAINED; r++) {
        if (!r->pid || r->client != u->client || r->channel != u->channel ||
            syscall(SYS_kcmp, getpid(), r->pid, KCMP_FILE, (unsigned long)fd, (unsigned long)r->fd))
            continue;
        r->pid = 0;
        on_card_unregistered++;
        u->status = RM_OK;
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

/* By another process than the client's own, so only what is for everybody. */
static uint32_t map_external(const uint8_t *params)
{
    const struct uvm_map_external_begin *begin = (const void *)params;
    const struct uvm_map_external_gpu *gpu = (const void *)(params + sizeof(*begin));
    const struct uvm_map_external_end *end = (const void *)(params + MAP_EXTERNAL_BYTES - sizeof(*end));
    const struct uvm_range *of = range_of(begin->range.base);

    if (!of || begin->range.base + begin->range.length > of->base + of->length)
        return RM_ERR_INVALID_ADDRESS;
    for (uint64_t i = 0; i < end->gpus; i++)
        if (!gpu[i].gpu[0])
            return RM_ERR_INVALID_DEVICE;
    for (int i = 0; i < SHARED; i++)
        if (shared[i].client == end->client && shared[i].handle == end->memory) {
            on_card_mapped = end->memory;
            return RM_OK;
        }
    return RM_ERR_INSUFFICIENT_PERMISSIONS;
}

/* Commands that the arbiter makes. A GPU is one whose name does not begin with 0. */
int uvm_on_card_serve(int fd, uint32_t cmd, void *arg)
{
    struct uvm_unmap_external *unmap = arg;
    struct uvm_range *of = range_of(unmap->range.base);
    uint32_t *freed = (void *)((uint8_t *)arg + 16); /* the status of FREE before 590.44 */

    switch (cmd) {
    case UVM_INITIALIZE:
        return initialize(fd, arg);
    case UVM_PAGEABLE_MEM_ACCESS:
        return pageable(fd, arg);
    case UVM_UNREGISTER_CHANNEL:
        return unregister(fd, arg);
    case UVM_MAP_EXTERNAL_ALLOCATION:
        freed = (void *)((uint8_t *)arg + MAP_EXTERNAL_BYTES - UVM_MAP_EXTERNAL_STATUS_FROM_END);
        *freed = map_external(arg);
        return 0;
    case UVM_FREE:
        *freed = of && of->base == unmap->range.base && of->length == unmap->range.length
                     ? RM_OK
                     : RM_ERR_INVALID_ADDRESS;
        if (*freed == RM_OK)
            *of = (struct uvm_range){0, 0};
        return 0;
    case UVM_UNMAP_EXTERNAL:
        unmap->status = !of || unmap->range.base + unmap->range.length > of->base + of->length
                            ? RM_ERR_INVALID_ADDRESS
                        : !unmap->gpu[0] ? RM_ERR_INVALID_DEVICE
                                         : RM_OK;
        return 0;
    default:
        abort();
    }
}
