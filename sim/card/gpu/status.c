/* What the card's registers show of its engines: the group whose context is on each, the one that comes next,
 * and whether it executes. */
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

enum { CONTEXT_VALID = 1, CONTEXT_SHIFT = 13, NEXT_SHIFT = 16 };
/* On a card with one list of engines a status says that its numbers are those of groups, not of channels. */
enum { IS_GROUP = 1 << 12, NEXT_IS_GROUP = 1 << 28 };
/* As many as an H200's firmware had of its own when its groups were numbered (580.159.04); RM does not tell
 * them. */
enum { FIRMWARE_GROUPS = 1 };
#define BUSY (1u << 31)

int status_start(struct gpu *gpu)
{
    void *at;
    int fd = memfd_sealed("mgpu-registers", SIM_BAR0_BYTES, 0);

    if (fd < 0)
        return fd;
    gpu->status_fd = fd;
    at = mmap(NULL, SIM_BAR0_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    gpu->bar0 = at;
    /* From here on only this mapping can write to it. */
    return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) ? -errno : 0;
}

static void put(struct gpu *gpu, uint32_t at, uint32_t word)
{
    __atomic_store_n((uint32_t *)(void *)(gpu->bar0 + at), word, __ATOMIC_RELEASE);
}

static uint32_t word_of(const struct gpu_engine *engine, const struct gpu_group *group)
{
    const struct registers *r = engine->gpu->registers;
    uint32_t tsg = group->totals.tsg + (r->whole_card ? 0 : FIRMWARE_GROUPS),
             busy = engine->state == ENGINE_IDLE ? 0 : BUSY;

    if (engine->state == ENGINE_LOADING)
        return tsg << NEXT_SHIFT | (r->whole_card ? NEXT_IS_GROUP : 0) | r->loads << CONTEXT_SHIFT | busy;
    return tsg | (r->whole_card ? IS_GROUP : 0) | busy |
           (engine->state == ENGINE_SAVING ? r->saves : CONTEXT_VALID) << CONTEXT_SHIFT;
}

static void show(struct gpu *gpu, struct gpu_engine *engine)
{
    const struct gpu_group *group = engine->moving ? engine->moving : engine->resident;
    uint32_t at = group ? group->status_at : 0;

    if (engine->shown_at && engine->shown_at != at)
        put(gpu, engine->shown_at, 0);
    if (at)
        put(gpu, at, word_of(engine, group));
    engine->shown_at = at;
}

void status_show(struct gpu *gpu)
{
    for (int i = 0; i < GPU_ENGINES; i++)
        show(gpu, &gpu->engines[i]);
}

int gpu_status_fd(const struct gpu *gpu)
{
    return memfd_reopen(gpu->status_fd, O_RDONLY);
}
