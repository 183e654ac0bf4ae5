#include "space.h"
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

struct space {
    pthread_mutex_t lock;
    uint32_t references;
    bool uvms;
    struct piece *piece; /* by address; none overlap */
    size_t pieces, room;
    struct managed managed;
};

struct space *space_create(void)
{
    struct space *space = calloc(1, sizeof *space);
    pthread_mutexattr_t attributes;

    if (!space)
        return NULL;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&space->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    space->references = 1;
    space->managed.fd = -1;
    return space;
}

void space_leave_to_uvm(struct space *space)
{
    space->uvms = true;
}

bool space_is_uvms(const struct space *space)
{
    return space->uvms;
}

struct space *space_take(struct space *space)
{
    __atomic_fetch_add(&space->references, 1, __ATOMIC_RELAXED);
    return space;
}

void space_put(struct space *space)
{
    if (!space || __atomic_sub_fetch(&space->references, 1, __ATOMIC_ACQ_REL))
        return;
    for (size_t i = 0; i < space->pieces; i++)
        sysmem_put(space->piece[i].memory);
    if (space->managed.fd >= 0)
        close(space->managed.fd);
    pthread_mutex_destroy(&space->lock);
    free(space->piece);
    free(space);
}

/* The first that ends above the address. */
static size_t first_above(const struct space *space, uint64_t address)
{
    size_t low = 0, high = space->pieces;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (space->piece[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool make_room(struct space *space, size_t more)
{
    size_t room = space->room ? space->room : 64;
    struct piece *piece;

    while (room < space->pieces + more)
        room *= 2;
    if (room == space->room)
        return true;
    piece = realloc(space->piece, room * sizeof *piece);
    if (!piece)
        return false;
    space->piece = piece;
    space->room = room;
    return true;
}

static void insert(struct space *space, size_t at, const struct piece *piece)
{
    memmove(&space->piece[at + 1], &space->piece[at], (space->pieces - at) * sizeof *piece);
    space->piece[at] = *piece;
    space->pieces++;
}

static void take_out(struct space *space, size_t at)
{
    sysmem_put(space->piece[at].memory);
    space->pieces--;
    memmove(&space->piece[at], &space->piece[at + 1], (space->pieces - at) * sizeof *space->piece);
}

/* There is room for one more: a piece may be cut in two. */
static void clear(struct space *space, uint64_t base, uint64_t end)
{
    size_t i = first_above(space, base);

    while (i < space->pieces && space->piece[i].base < end) {
        struct piece *p = &space->piece[i], rest = *p;

        if (p->base >= base && p->end <= end) {
            take_out(space, i);
            continue;
        }
        if (p->base < base && p->end > end) {
            if (p->memory)
                sysmem_take(p->memory);
            p->end = base;
            rest.offset += end - rest.base;
            rest.base = end;
            insert(space, i + 1, &rest);
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

bool space_map(struct space *space, uint64_t base, uint64_t length, struct sysmem *memory, uint64_t offset,
               const void *owner)
{
    const struct piece piece = {base, base + length, offset, memory, owner};
    bool room;

    pthread_mutex_lock(&space->lock);
    room = make_room(space, 2);
    if (room) {
        clear(space, base, base + length);
        if (memory)
            sysmem_take(memory);
        insert(space, first_above(space, base), &piece);
    }
    pthread_mutex_unlock(&space->lock);
    return room;
}

void space_unmap(struct space *space, uint64_t base, uint64_t length)
{
    pthread_mutex_lock(&space->lock);
    if (make_room(space, 1))
        clear(space, base, base + length);
    pthread_mutex_unlock(&space->lock);
}

void space_forget(struct space *space, const void *owner)
{
    pthread_mutex_lock(&space->lock);
    for (size_t i = space->pieces; i--;)
        if (space->piece[i].owner == owner)
            take_out(space, i);
    pthread_mutex_unlock(&space->lock);
}

bool space_manage(struct space *space, const struct managed *managed)
{
    struct managed now = *managed;
    bool there;

    pthread_mutex_lock(&space->lock);
    if (space->managed.fd >= 0)
        close(space->managed.fd);
    if (now.fd >= 0)
        now.fd = fcntl(now.fd, F_DUPFD_CLOEXEC, 0);
    there = now.fd >= 0 || managed->fd < 0;
    space->managed = now;
    pthread_mutex_unlock(&space->lock);
    return there;
}

bool space_view(struct space *space, uint64_t address, uint64_t most, struct view *view)
{
    const struct piece *p;
    size_t i;
    bool there;

    *view = (struct view){.memory = NULL};
    pthread_mutex_lock(&space->lock);
    i = first_above(space, address);
    there = i < space->pieces && space->piece[i].base <= address;
    if (there) {
        p = &space->piece[i];
        view->offset = p->offset + (address - p->base);
        view->bytes = p->end - address < most ? p->end - address : most;
        if (p->memory)
            view->memory = sysmem_take(p->memory);
    } else {
        there = managed_at(&space->managed, address, most, &view->memory, &view->offset, &view->bytes);
    }
    pthread_mutex_unlock(&space->lock);
    if (!view->memory || sysmem_reach(view->memory))
        return there;
    view_put(view);
    return false;
}

bool space_view_target(struct space *space, enum space_target target, uint64_t address, uint64_t most,
                       struct view *view)
{
    if (target == SPACE_VIRTUAL)
        return space_view(space, address, most, view);
    *view = (struct view){.memory = NULL};
    return false;
}

void view_put(struct view *view)
{
    sysmem_put(view->memory);
    view->memory = NULL;
}
