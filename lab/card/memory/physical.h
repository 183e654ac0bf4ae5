/* What physical addresses mean to the card: its own memory, and the guest's, which QEMU shares as files.
 * Every function may be called from any thread. */
#ifndef MGPU_LAB_PHYSICAL_H
#define MGPU_LAB_PHYSICAL_H
#include "../../../sim/card/memory/space.h"
#include "mmu.h"
#include <stddef.h>

struct physical;

/* NULL: the host has no room. It lives as long as the process. */
struct physical *physical_create(uint64_t video_bytes);
uint64_t physical_video_bytes(const struct physical *physical);
/* The card's own memory reads as zeros from now on. */
void physical_clear(struct physical *physical);

/* A piece of the guest's memory at that bus address; fd -1: of which nothing can be seen. False: no room. */
bool physical_map(struct physical *physical, uint64_t address, uint64_t bytes, int fd, uint64_t offset);
void physical_unmap(struct physical *physical, uint64_t address, uint64_t bytes);
void physical_unmap_all(struct physical *physical);

/* As vaspace_view(). */
bool physical_view(struct physical *physical, struct where at, uint64_t most, struct view *view);
/* All of it, or false. */
bool physical_read(struct physical *physical, struct where at, void *to, size_t bytes);
bool physical_write(struct physical *physical, struct where at, const void *from, size_t bytes);
/* For mmu_walk(); `physical` as its context. */
bool physical_word(void *physical, struct where at, uint64_t *word);
#endif
