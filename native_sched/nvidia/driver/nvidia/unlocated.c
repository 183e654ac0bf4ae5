#include "unlocated.h"
#include "native_sched/nvidia/driver/nvidia/files/unpollable.h"
#include "native_sched/nvidia/driver/nvidia/host/stat.h"
#include <sys/stat.h>

enum { ASKED_AT_ONCE = 16 };

/* The client of the nth of tenant t (NULL: of any); 0: there is none. */
static uint32_t nth(struct nvidia_files *f, const struct tenant *t, uint32_t n, uint32_t *slot)
{
    WITH_TABLE(f);

    for (*slot = f->unlocated; *slot; *slot = f->slot[*slot].next)
        if ((!t || f->slot[*slot].file.tenant == t) && !n--)
            return f->slot[*slot].client;
    return 0;
}

/* False: it was found or closed meanwhile. */
static bool take(struct nvidia_files *f, uint32_t slot)
{
    uint32_t *at = &f->unlocated;

    assert_held(&f->lock);
    while (*at && *at != slot)
        at = &f->slot[*at].next;
    if (!*at)
        return false;
    *at = f->slot[slot].next;
    return true;
}

static void locate(struct nvidia_files *f, uint32_t slot, int ours, struct fd_place at)
{
    WITH_TABLE(f);

    if (!take(f, slot))
        return;
    if (nvidia_files_insert(f, slot, ours) == 0)
        nvidia_file_note_place(&f->slot[slot], at);
    else
        nvidia_files_insert(f, slot, -1);
}

static void retire(struct nvidia_files *f, uint32_t slot)
{
    WITH_TABLE(f);

    if (take(f, slot))
        nvidia_files_retire(f, slot);
}

static bool is_control(const struct driver *d, int fd)
{
    struct nvidia_node node;
    struct stat st;

    return nvidia_stat(fd, "", &st) == 0 && d->host->classify(&st, d->uvm_major, &node) == 0 &&
           node.kind == NODE_CTL;
}

void nvidia_unlocated_found(struct driver *d, const struct tenant *t, int ours, struct fd_place at)
{
    uint32_t slot, client;

    if (!__atomic_load_n(&d->files.unlocated, __ATOMIC_RELAXED) || !is_control(d, ours) ||
        nvidia_files_know(&d->files, ours))
        return;
    for (uint32_t n = 0; (client = nth(&d->files, t, n, &slot)); n++)
        if (nvidia_client_answers(&d->client, ours, client)) {
            locate(&d->files, slot, ours, at);
            return;
        }
}

void nvidia_unlocated_poll(struct driver *d)
{
    uint32_t slot, client;

    if (!__atomic_load_n(&d->files.unlocated, __ATOMIC_RELAXED))
        return;
    for (int asked = 0; asked < ASKED_AT_ONCE; asked++) {
        if (!(client = nth(&d->files, NULL, d->unlocated_next, &slot))) {
            d->unlocated_next = 0;
            return;
        }
        if (nvidia_client_exists(&d->client, client) == 0)
            retire(&d->files, slot);
        else
            d->unlocated_next++;
    }
}

void nvidia_unlocated_exited(struct driver *d, const struct tenant *t)
{
    uint32_t slot;

    while (nth(&d->files, t, 0, &slot))
        retire(&d->files, slot);
}
