/* An address space of the card's: which memory lies at which of its addresses. Channels execute in one
 * (gpu/push.c); nvidia-uvm and MAP_MEMORY_DMA put memory into it (uvm_ranges.c, dma.c).
 *
 * Every function may be called from any thread; a space's lock is taken under all others but that of host
 * memory. */
#ifndef MGPU_SIM_SPACE_H
#define MGPU_SIM_SPACE_H
#include "managed.h"

struct vaspace;

/* NULL: the host has no room. With one reference. */
struct vaspace *vaspace_create(void);
/* nvidia-uvm's to fill (NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED). */
void vaspace_leave_to_uvm(struct vaspace *vaspace);
bool vaspace_is_uvms(const struct vaspace *vaspace);
struct vaspace *vaspace_take(struct vaspace *vaspace);
void vaspace_put(struct vaspace *vaspace);

/* `length` bytes at `base`, in place of what lies there, are those of the memory from `offset` on; memory
 * NULL: memory of a card that holds no data. `owner` names the mapping for vaspace_forget(). False: the host
 * has no room. */
bool vaspace_map(struct vaspace *vaspace, uint64_t base, uint64_t length, struct sysmem *memory,
                 uint64_t offset, const void *owner);
void vaspace_unmap(struct vaspace *vaspace, uint64_t base, uint64_t length);
/* All that this owner has mapped there. */
void vaspace_forget(struct vaspace *vaspace, const void *owner);

/* Where nothing else lies, managed memory does; fd -1: no longer. The descriptor is duplicated. False: the
 * host has no room. */
bool vaspace_manage(struct vaspace *vaspace, const struct managed *managed);

/* What is at an address: as many bytes as lie in one piece, `most` at the most. */
struct view {
    struct sysmem *memory; /* with a reference; NULL: nothing is to be seen there */
    uint64_t offset;
    uint64_t bytes;
};
/* False: nothing is mapped there, or the host has no room. */
bool vaspace_view(struct vaspace *vaspace, uint64_t address, uint64_t most, struct view *view);
/* What addresses of a copy are: of the space, or a place in the card's own or the host's memory, as only a
 * driver's channels may say. Of the latter there is none in the simulated card. */
enum vaspace_target { SPACE_VIRTUAL, SPACE_VIDEO, SPACE_HOST };
bool vaspace_view_target(struct vaspace *vaspace, enum vaspace_target target, uint64_t address, uint64_t most,
                         struct view *view);
void view_put(struct view *view);
static inline uint8_t *view_at(const struct view *view)
{
    return view->memory->at + view->offset;
}
#endif
