#include "tables.h"
#include <stdatomic.h>
#include <stdlib.h>

/* A directory in one word: it changes while engines look addresses up. Directories are aligned to pages. */
enum { IS_SET = 1, IN_HOST = 2, FLAGS = 3 };

struct space {
    struct physical *physical;
    enum mmu_format format;
    atomic_uint references;
    _Atomic uint64_t directory;
};

struct space *tables_create(struct physical *physical, enum mmu_format format)
{
    struct space *space = calloc(1, sizeof *space);

    if (!space)
        return NULL;
    space->physical = physical;
    space->format = format;
    space->references = 1;
    return space;
}

void tables_set(struct space *space, struct where directory)
{
    space->directory = (directory.address & ~(uint64_t)FLAGS) | IS_SET |
                       (directory.aperture == HOST ? (uint64_t)IN_HOST : 0);
}

void tables_unset(struct space *space)
{
    space->directory = 0;
}

struct space *space_take(struct space *space)
{
    space->references++;
    return space;
}

void space_put(struct space *space)
{
    if (space && --space->references == 0)
        free(space);
}

static bool walk(struct space *space, uint64_t address, struct translation *found)
{
    uint64_t word = space->directory;
    const struct where directory = {word & IN_HOST ? HOST : VIDEO, word & ~(uint64_t)FLAGS};

    return word & IS_SET &&
           mmu_walk(physical_word, space->physical, space->format, directory, address, found);
}

bool tables_message(struct space *space, uint64_t address, uint64_t *at)
{
    struct translation found;

    if (!walk(space, address, &found) || !found.message)
        return false;
    *at = found.to.address;
    return true;
}

bool space_view(struct space *space, uint64_t address, uint64_t most, struct view *view)
{
    struct translation found;

    *view = (struct view){.memory = NULL};
    return walk(space, address, &found) && !found.message &&
           physical_view(space->physical, found.to, found.bytes < most ? found.bytes : most, view);
}

bool space_view_target(struct space *space, enum space_target target, uint64_t address, uint64_t most,
                       struct view *view)
{
    if (target == SPACE_VIRTUAL)
        return space_view(space, address, most, view);
    return physical_view(space->physical, (struct where){target == SPACE_HOST ? HOST : VIDEO, address}, most,
                         view);
}

void view_put(struct view *view)
{
    sysmem_put(view->memory);
    view->memory = NULL;
}
