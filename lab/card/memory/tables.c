#include "tables.h"
#include <stdatomic.h>
#include <stdlib.h>

/* A directory in one word: it changes while engines look addresses up. Directories are aligned to pages. */
enum { IS_SET = 1, IN_HOST = 2, FLAGS = 3 };

struct vaspace {
    struct physical *physical;
    enum mmu_format format;
    atomic_uint references;
    _Atomic uint64_t directory;
};

struct vaspace *tables_create(struct physical *physical, enum mmu_format format)
{
    struct vaspace *vaspace = calloc(1, sizeof *vaspace);

    if (!vaspace)
        return NULL;
    vaspace->physical = physical;
    vaspace->format = format;
    vaspace->references = 1;
    return vaspace;
}

void tables_set(struct vaspace *vaspace, struct where directory)
{
    vaspace->directory = (directory.address & ~(uint64_t)FLAGS) | IS_SET |
                         (directory.aperture == HOST ? (uint64_t)IN_HOST : 0);
}

void tables_unset(struct vaspace *vaspace)
{
    vaspace->directory = 0;
}

struct vaspace *vaspace_take(struct vaspace *vaspace)
{
    vaspace->references++;
    return vaspace;
}

void vaspace_put(struct vaspace *vaspace)
{
    if (vaspace && --vaspace->references == 0)
        free(vaspace);
}

static bool walk(struct vaspace *vaspace, uint64_t address, struct translation *found)
{
    uint64_t word = vaspace->directory;
    const struct where directory = {word & IN_HOST ? HOST : VIDEO, word & ~(uint64_t)FLAGS};

    return word & IS_SET &&
           mmu_walk(physical_word, vaspace->physical, vaspace->format, directory, address, found);
}

bool tables_message(struct vaspace *vaspace, uint64_t address, uint64_t *at)
{
    struct translation found;

    if (!walk(vaspace, address, &found) || !found.message)
        return false;
    *at = found.to.address;
    return true;
}

bool vaspace_view(struct vaspace *vaspace, uint64_t address, uint64_t most, struct view *view)
{
    struct translation found;

    *view = (struct view){.memory = NULL};
    return walk(vaspace, address, &found) && !found.message &&
           physical_view(vaspace->physical, found.to, found.bytes < most ? found.bytes : most, view);
}

bool vaspace_view_target(struct vaspace *vaspace, enum vaspace_target target, uint64_t address, uint64_t most,
                         struct view *view)
{
    if (target == SPACE_VIRTUAL)
        return vaspace_view(vaspace, address, most, view);
    return physical_view(vaspace->physical, (struct where){target == SPACE_HOST ? HOST : VIDEO, address},
                         most, view);
}

void view_put(struct view *view)
{
    sysmem_put(view->memory);
    view->memory = NULL;
}
