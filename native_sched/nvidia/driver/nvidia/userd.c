/* A channel's USERD, seen from the arbiter: the tenant's memory object is shared with the arbiter's own
 * client, duplicated there and mapped read-only.
 *
 * The other way, /proc/PID/mem at the place where the tenant has mapped it, was not taken: that place is the
 * tenant's to choose and to change (it can map any page there, and work unseen), mmap() is not ours to see,
 * and every read is a system call and, for video memory, a mapping made and unmade in the kernel. This one is
 * the very object the card reads, for a load instruction. Its price: the duplicate keeps the memory alive
 * until userd_unmap(). */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "native_sched/nvidia/driver/rm_control.h"
#include "private.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

struct duplicate {
    struct nvidia_client *client;
    struct nvidia_instance *instance; /* whose client it is; NULL: the arbiter's own */
    const struct own_card *card;
    uint32_t handle;
};

/* Of a MIG instance, RM lets only a subscribed client duplicate video memory (vidmemCheckCopyPermissions() in
 * video_mem.c), and maps it where the subscription says (kbusGetBar1VARangeForDevice() in kern_bus.c). Memory
 * of the host can be duplicated even where subscribing fails. */
static struct duplicate *begin(struct driver *d, const struct card *card)
{
    struct nvidia_instance *instance = &d->instance[card->index];
    const struct own_card *own = nvidia_client_card(&d->client, card->minor);
    struct duplicate *dup = own ? malloc(sizeof(*dup)) : NULL;
    struct nvidia_client *c;

    if (!dup)
        return NULL;
    *dup = (struct duplicate){.client = &d->client, .card = own};
    if (instance->is && nvidia_instance_enter(instance, d->host, &c) == 0)
        *dup = (struct duplicate){.client = c, .instance = instance, .card = &c->card[0]};
    return dup;
}

static void end(struct duplicate *dup)
{
    if (dup->handle)
        nvidia_client_free(dup->client, dup->card->device, dup->handle);
    if (dup->instance)
        nvidia_instance_leave(dup->instance);
    free(dup);
}

/* Asked through the tenant's own file: its client alone may share its objects. */
static int share(struct driver *d, const struct duplicate *dup, const struct rm_target *channel)
{
    struct rm_share s = {
        .client = channel->client,
        .handle = channel->userd.memory,
        .policy.target = dup->client->root,
        .policy.access_mask = RM_SHARE_ACCESS_DUP,
        .policy.type = RM_SHARE_TYPE_CLIENT,
        .policy.action = RM_SHARE_COMPOSE, /* the tenant's own process keeps its right to duplicate it */
    };
    struct driver_call call = {
        .file = &channel->file,
        .cmd = RM_CMD(NV_ESC_RM_SHARE, sizeof(s)),
        .outer = (uint8_t *)&s,
        .outer_bytes = sizeof(s),
        .reply_fd = -1,
    };
    int e = nvidia_execute(d, &call);

    return e < 0 ? e : s.status == NV_OK ? 0 : rm_refusal(s.status);
}

static int duplicate(struct duplicate *of, const struct rm_target *channel)
{
    struct rm_dup dup = {
        .parent = of->card->device,
        .handle = nvidia_client_handle(of->client),
        .source_client = channel->client,
        .source_handle = channel->userd.memory,
    };
    int e = nvidia_client_dup(of->client, &dup);

    if (e < 0 || dup.status != NV_OK)
        return e < 0 ? e : rm_refusal(dup.status);
    of->handle = dup.handle;
    return 0;
}

/* Video memory is mapped through the card's node, the host's through the control node: which it is, is not
 * asked. */
static int map(const struct duplicate *dup, uint64_t page, void **at)
{
    struct rm_map_memory m = {
        .client = dup->client->root,
        .device = dup->card->device,
        .memory = dup->handle,
        .offset = page,
        .length = PAGE_BYTES,
    };

    if (nvidia_client_map(dup->client, dup->card, &m, at) == 0)
        return 0;
    return nvidia_client_map(dup->client, NULL, &m, at);
}

int nvidia_userd_map(struct driver *d, const struct rm_target *channel, struct userd *out)
{
    const struct userd_place *place = &channel->userd;
    uint64_t in_page = place->offset % PAGE_BYTES;
    struct duplicate *dup;
    int e;

    if (!place->memory)
        return -ENODATA;
    if (in_page > PAGE_BYTES - RM_USERD_BYTES)
        return -EINVAL;
    if (!(dup = begin(d, place->card)))
        return -ENODEV;
    if ((e = share(d, dup, channel)) < 0 || (e = duplicate(dup, channel)) < 0 ||
        (e = map(dup, place->offset - in_page, &out->map)) < 0) {
        end(dup);
        return e;
    }
    out->map_bytes = PAGE_BYTES;
    out->at = (const volatile uint8_t *)out->map + in_page;
    out->owner = dup;
    out->has_get = chip_shows_get(d->chip[place->card->index], place->class_id);
    return 0;
}

void nvidia_userd_unmap(struct userd *userd)
{
    munmap(userd->map, userd->map_bytes);
    end(userd->owner);
}
