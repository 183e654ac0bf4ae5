/* An address space whose pages the driver's tables say: what struct space is here. The engines see it through
 * sim/card/memory/space.h only. */
#ifndef MGPU_LAB_TABLES_H
#define MGPU_LAB_TABLES_H
#include "physical.h"

/* With one reference; NULL: no room. Without a directory, everything in it faults. */
struct vaspace *tables_create(struct physical *physical, enum mmu_format format);
/* From the next address on that is looked up. */
void tables_set(struct vaspace *vaspace, struct where directory);
void tables_unset(struct vaspace *vaspace);
/* Whether it is an address of registers, and of which. */
bool tables_message(struct vaspace *vaspace, uint64_t address, uint64_t *at);
#endif
