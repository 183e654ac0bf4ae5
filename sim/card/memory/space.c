#include "space.h"
#include "../../../base/mutex.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct piece {
    uint64_t base, end, offset;
    struct sysmem *memory;
    const void *owner;
};

struct vaspace {
    pthread_mutex_t lock;
    uint32_t references;
    bool uvms;
    struct piece *piece; /* by address; none overlap */
    size_t pieces, room;
    struct managed managed;
};

struct vaspace *vaspace_create(void)
{
    struct vaspace *vaspace = calloc(1, sizeof *vaspace);

    if (!vaspace)
        return NULL;
    mutex_init_inheriting(&vaspace->lock);
    vaspace->references = 1;
    vaspace->managed.fd = -1;
    return vaspace;
}

void vaspace_leave_to_uvm(struct vaspace *vaspace)
{
    vaspace->uvms = true;
}

bool vaspace_is_uvms(const struct vaspace *vaspace)
{
    return vaspace->uvms;
}

struct vaspace *vaspace_take(struct vaspace *vaspace)
{
    __atomic_fetch_add(&vaspace->references, 1, __ATOMIC_RELAXED);
    return vaspace;
}

void vaspace_put(struct vaspace *vaspace)
{
    if (!vaspace || __atomic_sub_fetch(&vaspace->references, 1, __ATOMIC_ACQ_REL))
        return;
    for (size_t i = 0; i < vaspace->pieces; i++)
        sysmem_put(vaspace->piece[i].memory);
    if (vaspace->managed.fd >= 0)
        close(vaspace->managed.fd);
    pthread_mutex_destroy(&vaspace->lock);
    free(vaspace->piece);
    free(vaspace);
}

/* The first that ends above the address. */
static size_t first_above(const struct vaspace *vaspace, uint64_t address)
{
    size_t low = 0, high = vaspace->pieces;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (vaspace->piece[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool make_room(struct vaspace *vaspace, size_t more)
{
    size_t room = vaspace->room ? vaspace->room : 64;
    struct piece *piece;

    while (room < vaspace->pieces + more)
        room *= 2;
    if (room == vaspace->room)
        return true;
    piece = realloc(vaspace->piece, room * sizeof *piece);
    if (!piece)
        return false;
    vaspace->piece = piece;
    vaspace->room = room;
    return true;
}

static void insert(struct vaspace *vaspace, size_t at, const struct piece *piece)
{
    memmove(&vaspace->piece[at + 1], &vaspace->piece[at], (vaspace->pieces - at) * sizeof *piece);
    vaspace->piece[at] = *piece;
    vaspace->pieces++;
}

static void take_out(struct vaspace *vaspace, size_t at)
{
    sysmem_put(vaspace->piece[at].memory);
    vaspace->pieces--;
    memmove(&vaspace->piece[at], &vaspace->piece[at + 1], (vaspace->pieces - at) * sizeof *vaspace->piece);
}

/* There is room for one more: a piece may be cut in two. */
static void clear(struct vaspace *vaspace, uint64_t base, uint64_t end)
{
    size_t i = first_above(vaspace, base);

    while (i < vaspace->pieces && vaspace->piece[i].base < end) {
        struct piece *p = &vaspace->piece[i], rest = *p;

        if (p->base >= base && p->end <= end) {
            take_out(vaspace, i);
            continue;
        }
        if (p->base < base && p->end > end) {
            if (p->memory)
                sysmem_take(p->memory);
            p->end = base;
            rest.offset += end - rest.base;
            rest.base = end;
            insert(vaspace, i + 1, &rest);
            return;
        }
        if (p->base < base) {
            p->end = base;
        } else {
            p->offset += end - p->base;
            p->base = end;
        }
        i++;
    }
}

bool vaspace_map(struct vaspace *vaspace, uint64_t base, uint64_t length, struct sysmem *memory,
                 uint64_t offset, const void *owner)
{
    const struct piece piece = {base, base + length, offset, memory, owner};
    bool room;

    LOCKED(&vaspace->lock);
    room = make_room(vaspace, 2);
    if (room) {
        clear(vaspace, base, base + length);
        if (memory)
            sysmem_take(memory);
        insert(vaspace, first_above(vaspace, base), &piece);
    }
    return room;
}

void vaspace_unmap(struct vaspace *vaspace, uint64_t base, uint64_t length)
{
    LOCKED(&vaspace->lock);
    if (make_room(vaspace, 1))
        clear(vaspace, base, base + length);
}

void vaspace_forget(struct vaspace *vaspace, const void *owner)
{
    LOCKED(&vaspace->lock);
    for (size_t i = vaspace->pieces; i--;)
        if (vaspace->piece[i].owner == owner)
            take_out(vaspace, i);
}

bool vaspace_manage(struct vaspace *vaspace, const struct managed *managed)
{
    struct managed now = *managed;
    bool there;

    LOCKED(&vaspace->lock);
    if (vaspace->managed.fd >= 0)
        close(vaspace->managed.fd);
    if (now.fd >= 0)
        now.fd = fcntl(now.fd, F_DUPFD_CLOEXEC, 0);
    there = now.fd >= 0 || managed->fd < 0;
    vaspace->managed = now;
    return there;
}

bool vaspace_view(struct vaspace *vaspace, uint64_t address, uint64_t most, struct view *view)
{
    const struct piece *p;
    size_t i;
    bool there;

    *view = (struct view){.memory = NULL};
    pthread_mutex_lock(&vaspace->lock);
    i = first_above(vaspace, address);
    there = i < vaspace->pieces && vaspace->piece[i].base <= address;
    if (there) {
        p = &vaspace->piece[i];
        view->offset = p->offset + (address - p->base);
        view->bytes = p->end - address < most ? p->end - address : most;
        if (p->memory)
            view->memory = sysmem_take(p->memory);
    } else {
        there = managed_at(&vaspace->managed, address, most, &view->memory, &view->offset, &view->bytes);
    }
    pthread_mutex_unlock(&vaspace->lock);
    if (!view->memory || sysmem_reach(view->memory))
        return there;
    view_put(view);
    return false;
}

bool vaspace_view_target(struct vaspace *vaspace, enum vaspace_target target, uint64_t address, uint64_t most,
                         struct view *view)
{
    if (target == SPACE_VIRTUAL)
        return vaspace_view(vaspace, address, most, view);
    *view = (struct view){.memory = NULL};
    return false;
}

void view_put(struct view *view)
{
    sysmem_put(view->memory);
    view->memory = NULL;
}
