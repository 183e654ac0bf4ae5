#include "physical.h"
#include "../../../base/mutex.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REGIONS = 128 };

struct region {
    uint64_t address, bytes;
    struct sysmem *memory; /* NULL: nothing of it can be seen */
};

struct physical {
    struct sysmem *video;
    pthread_mutex_t lock; /* of the regions */
    struct region region[REGIONS];
    uint32_t regions;
};

struct physical *physical_create(uint64_t video_bytes)
{
    struct physical *physical = calloc(1, sizeof *physical);

    if (!physical)
        return NULL;
    mutex_init_inheriting(&physical->lock);
    physical->video = sysmem_sparse(video_bytes);
    if (physical->video && sysmem_reach(physical->video))
        return physical;
    free(physical->video);
    free(physical);
    return NULL;
}

uint64_t physical_video_bytes(const struct physical *physical)
{
    return physical->video->bytes;
}

void physical_clear(struct physical *physical)
{
    madvise(physical->video->at, physical->video->bytes, MADV_REMOVE);
}

bool physical_map(struct physical *physical, uint64_t address, uint64_t bytes, int fd, uint64_t offset)
{
    struct sysmem *memory = fd < 0 ? NULL : sysmem_of_file(fd, offset, bytes);
    bool room = bytes && bytes - 1 <= UINT64_MAX - address && (fd < 0 || memory);

    pthread_mutex_lock(&physical->lock);
    room = room && physical->regions < REGIONS;
    if (room)
        physical->region[physical->regions++] = (struct region){address, bytes, memory};
    pthread_mutex_unlock(&physical->lock);
    if (!room)
        sysmem_put(memory);
    return room;
}

static void unmap(struct physical *physical, uint64_t first, uint64_t last)
{
    uint32_t kept = 0;

    LOCKED(&physical->lock);
    for (uint32_t i = 0; i < physical->regions; i++) {
        struct region *region = &physical->region[i];

        if (region->address >= first && region->address + (region->bytes - 1) <= last)
            sysmem_put(region->memory);
        else
            physical->region[kept++] = *region;
    }
    physical->regions = kept;
}

void physical_unmap(struct physical *physical, uint64_t address, uint64_t bytes)
{
    if (bytes)
        unmap(physical, address, bytes - 1 > UINT64_MAX - address ? UINT64_MAX : address + (bytes - 1));
}

void physical_unmap_all(struct physical *physical)
{
    unmap(physical, 0, UINT64_MAX);
}

static bool view_of(struct sysmem *memory, uint64_t offset, uint64_t most, struct view *view)
{
    if (!memory || offset >= memory->bytes)
        return false;
    view->memory = sysmem_take(memory);
    view->offset = offset;
    view->bytes = memory->bytes - offset < most ? memory->bytes - offset : most;
    return true;
}

bool physical_view(struct physical *physical, struct where at, uint64_t most, struct view *view)
{
    bool there = false;

    *view = (struct view){.memory = NULL};
    if (at.aperture == VIDEO)
        return view_of(physical->video, at.address, most, view);
    LOCKED(&physical->lock);
    for (uint32_t i = physical->regions; i-- && !there;) {
        const struct region *region = &physical->region[i];

        if (at.address >= region->address && at.address - region->address < region->bytes)
            there = view_of(region->memory, at.address - region->address, most, view);
    }
    return there;
}

bool physical_read(struct physical *physical, struct where at, void *to, size_t bytes)
{
    struct view view;

    while (bytes && physical_view(physical, at, bytes, &view)) {
        memcpy(to, view_at(&view), view.bytes);
        sysmem_put(view.memory);
        to = (uint8_t *)to + view.bytes;
        at.address += view.bytes;
        bytes -= view.bytes;
    }
    return !bytes;
}

bool physical_write(struct physical *physical, struct where at, const void *from, size_t bytes)
{
    struct view view;

    while (bytes && physical_view(physical, at, bytes, &view)) {
        memcpy(view_at(&view), from, view.bytes);
        sysmem_put(view.memory);
        from = (const uint8_t *)from + view.bytes;
        at.address += view.bytes;
        bytes -= view.bytes;
    }
    return !bytes;
}

bool physical_word(void *physical, struct where at, uint64_t *word)
{
    return physical_read(physical, at, word, sizeof *word);
}
