/* A group is all that has to be made: the memory of the contexts that its channels will have is set aside
 * with it (ctxBufPoolReserve() in kchangrpapiConstruct(), kernel_channel_group_api.c), and so are its fault
 * method buffers. */
#include "context.h"
#include "native_sched/nvidia/rm/channel.h"
#include "private.h"
#include <errno.h>

/* The first group brings what all groups of the card or device share (its address space). Of the others the
 * median is taken, since an allocation of another process falsifies one or two. */
enum { GROUPS = 6, KIB = 1024 };

static int free_bytes(const struct nvidia_client *c, const struct rm_table *rm, const struct own_card *card,
                      uint64_t *out)
{
    struct rm_fb_info info = {.count = 1, .entry[0].index = RM_FB_HEAP_FREE};
    int bytes = rm_control_params(rm, NV2080_CTRL_CMD_FB_GET_INFO_V2);
    int e = bytes < 0 ? bytes
                      : nvidia_client_control(c, card->subdevice, NV2080_CTRL_CMD_FB_GET_INFO_V2, &info,
                                              (uint32_t)bytes);

    *out = (uint64_t)info.entry[0].data * KIB;
    return e;
}

static void sort(int64_t *value, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k && value[k - 1] > value[k]; k--) {
            int64_t less = value[k];

            value[k] = value[k - 1];
            value[k - 1] = less;
        }
}

static int take(struct nvidia_client *c, const struct rm_table *rm, const struct own_card *card, bool copies,
                uint32_t group[GROUPS], int64_t taken[GROUPS])
{
    uint64_t before, after;
    int e = free_bytes(c, rm, card, &before);

    for (int i = 0; i < GROUPS && e == 0; i++, before = after) {
        union rm_channel_group_params params = {
            .group.engine_type = copies ? RM_ENGINE_COPY0 : RM_ENGINE_GRAPHICS,
        };
        uint32_t handle = nvidia_client_handle(c);

        if ((e = nvidia_client_alloc(c, card->device, &handle, KEPLER_CHANNEL_GROUP_A, &params,
                                     rm_bytes(rm, RM_BYTES_NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS))) < 0)
            break;
        group[i] = handle;
        e = free_bytes(c, rm, card, &after);
        taken[i] = (int64_t)(before - after);
    }
    return e;
}

int nvidia_context_bytes(struct driver *d, const struct rm_table *rm, uint32_t minor, bool copies,
                         uint64_t *out)
{
    const struct own_card *card = nvidia_client_attach(&d->client, minor);
    uint32_t group[GROUPS] = {0};
    int64_t taken[GROUPS];
    int e;

    if (!card)
        return -ENODEV;
    e = take(&d->client, rm, card, copies, group, taken);
    for (int i = 0; i < GROUPS && group[i]; i++)
        (void)nvidia_client_free(&d->client, card->device, group[i]);
    if (e < 0)
        return e;
    sort(taken + 1, GROUPS - 1);
    *out = taken[GROUPS / 2] > 0 ? (uint64_t)taken[GROUPS / 2] : 0;
    return 0;
}
