/* What the simulated card's engines execute: a page of its own, mapped read-only. */
#define _GNU_SOURCE
#include "sim/abi/channel_abi.h"
#include "base/scoped.h"
#include "line.h"
#include "private.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* As with the driver's own file, the mapping outlives the object; userd_unmap() ends it. */
int sim_map_readonly(int fd, void **at, size_t *bytes)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *bytes = (size_t)st.st_size;
    *at = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
    return *at == MAP_FAILED ? -errno : 0;
}

static void unmap_status(struct driver *d, uint32_t minor)
{
    if (d->status[minor])
        munmap((void *)(uintptr_t)d->status[minor], d->status_bytes[minor]);
    d->status[minor] = NULL;
}

static int map_status(struct driver *d, uint32_t minor)
{
    struct line *l = sim_line();
    scoped_fd int fd = -1;
    size_t bytes;
    void *at;
    int e;

    if (!l)
        return -ENOMEM;
    sim_begin(l, SIM_STATUS);
    l->request.minor = minor;
    if ((e = sim_ask(d, l, 0, &fd)) < 0)
        return e;
    if (fd < 0)
        return -EIO;
    if ((e = sim_map_readonly(fd, &at, &bytes)) < 0)
        return e;
    if (bytes < sizeof(struct sim_status_page)) {
        munmap(at, bytes);
        return -EIO;
    }
    d->status[minor] = at;
    d->status_bytes[minor] = bytes;
    return 0;
}

void sim_add_card(struct driver *d, const struct card *card)
{
    if (card->minor >= MAX_CARDS)
        return;
    sim_release(d, card->minor, false);
    (void)map_status(d, card->minor);
}

void sim_release_card(struct driver *d, const struct card *card, bool alone)
{
    (void)alone; /* the driver that it is goes on without being asked */
    if (card->minor >= MAX_CARDS)
        return;
    unmap_status(d, card->minor);
    sim_release(d, card->minor, true);
}

int sim_engine_status(struct driver *d, const struct card *card, struct engine_status *out)
{
    uint32_t minor = card->minor;

    if (minor >= MAX_CARDS || !d->status[minor])
        return 0;
    for (int i = 0; i < SIM_ENGINES; i++) {
        uint32_t word = d->status[minor]->engine[i];

        /* The card numbers its groups, whatever their engine. */
        out[i] = (struct engine_status){
            .tsg_id = word & SIM_STATUS_TSG_MASK,
            .engines = UINT64_MAX,
            .busy = word & SIM_STATUS_BUSY,
        };
    }
    return SIM_ENGINES;
}

void sim_unmap_all(struct driver *d)
{
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        unmap_status(d, i);
}
