/* A channel's USERD, seen from the arbiter: the tenant's memory object is shared with the arbiter's own client, duplicated
 * there and mapped read-only.
 *
 * The other way, /proc/PID/mem at the place where the tenant has mapped it, was not taken: that place is the tenant's to
 * choose and to change (it can map any page there, and work unseen), mmap() is not ours to see, and every read is a
 * system call and, for video memory, a mapping made and unmade in the kernel. This one is the very object the card
 * reads, for a load instruction. Its price: the duplicate keeps the memory alive until userd_unmap(). */
#define _GNU_SOURCE
#include "../base/scoped.h"
#include "nvidia_private.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };

struct duplicate {
    const struct nvidia_client *client;
    uint32_t parent, handle;
};

/* Asked through the tenant's own file: its client alone may share its objects. */
static int share(struct driver *d, const struct rm_target *channel)
{
    struct rm_share s = {
        .client = channel->client,
        .handle = channel->userd.memory,
        .policy.target = d->client.root,
        .policy.access_mask = RM_SHARE_ACCESS_DUP,
        .policy.type = RM_SHARE_TYPE_CLIENT,
        .policy.action = RM_SHARE_COMPOSE, /* the tenant's own process keeps its right to duplicate it */
    };
    struct driver_call call = {
        .file = &channel->file,
        .cmd = RM_CMD(RM_ESC_SHARE, sizeof(s)),
        .outer = (uint8_t *)&s,
        .outer_bytes = sizeof(s),
        .reply_fd = -1,
    };
    int e = nvidia_execute(d, &call);

    return e < 0 ? e : s.status == RM_OK ? 0 : -EIO;
}

static int duplicate(struct driver *d, const struct own_card *card, const struct rm_target *channel,
                     struct duplicate *out)
{
    struct rm_dup dup = {
        .client = d->client.root,
        .parent = card->device,
        .handle = nvidia_client_handle(&d->client),
        .source_client = channel->client,
        .source_handle = channel->userd.memory,
    };
    int e = d->host->ioctl(d->client.ctl, RM_CMD(RM_ESC_DUP_OBJECT, sizeof(dup)), &dup);

    *out = (struct duplicate){&d->client, card->device, dup.handle};
    return e < 0 ? e : dup.status == RM_OK ? 0 : -EIO;
}

/* The mapping keeps `fd`'s file; a file has one mapping at a time. */
static int map_through(struct driver *d, int fd, const struct duplicate *dup, uint64_t page, void **at)
{
    struct rm_map_memory m = {
        .client = d->client.root,
        .device = dup->parent,
        .memory = dup->handle,
        .offset = page,
        .length = PAGE_BYTES,
        .flags = RM_MAP_READ_ONLY,
        .fd = fd,
    };
    int e = d->host->ioctl(d->client.ctl, RM_CMD(RM_ESC_MAP_MEMORY, sizeof(m)), &m);

    if (e < 0 || m.status != RM_OK)
        return e < 0 ? e : -EIO;
    *at = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    return *at == MAP_FAILED ? -errno : 0;
}

/* Video memory is mapped through the card's node, the host's through the control node: which it is, is not asked. */
static int map(struct driver *d, const struct own_card *card, const struct duplicate *dup, uint64_t page,
               void **at)
{
    scoped_fd int card_node = nvidia_client_node(&d->client, card);
    scoped_fd int control_node = -1;

    if (card_node >= 0 && map_through(d, card_node, dup, page, at) == 0)
        return 0;
    control_node = nvidia_client_node(&d->client, NULL);
    return control_node < 0 ? control_node : map_through(d, control_node, dup, page, at);
}

int nvidia_userd_map(struct driver *d, const struct rm_target *channel, struct userd *out)
{
    const struct userd_place *place = &channel->userd;
    const struct own_card *card = nvidia_client_card(&d->client, place->minor);
    uint64_t in_page = place->offset % PAGE_BYTES;
    struct duplicate *dup;
    int e;

    if (!place->memory)
        return -ENODATA;
    if (!card)
        return -ENODEV;
    if (in_page > PAGE_BYTES - RM_USERD_BYTES)
        return -EINVAL;
    if (!(dup = malloc(sizeof(*dup))))
        return -ENOMEM;
    if ((e = share(d, channel)) < 0 || (e = duplicate(d, card, channel, dup)) < 0) {
        free(dup);
        return e;
    }
    if ((e = map(d, card, dup, place->offset - in_page, &out->map)) < 0) {
        nvidia_client_free(dup->client, dup->parent, dup->handle);
        free(dup);
        return e;
    }
    out->map_bytes = PAGE_BYTES;
    out->at = (const volatile uint8_t *)out->map + in_page;
    out->owner = dup;
    return 0;
}

void nvidia_userd_unmap(struct userd *userd)
{
    struct duplicate *dup = userd->owner;

    munmap(userd->map, userd->map_bytes);
    nvidia_client_free(dup->client, dup->parent, dup->handle);
    free(dup);
}
