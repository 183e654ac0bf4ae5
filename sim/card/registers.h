/* Where a chip's registers are, and what RM says of that. */
#ifndef MGPU_SIM_REGISTERS_H
#define MGPU_SIM_REGISTERS_H
#include "../abi/channel_abi.h"
#include "gpu/registers.h"
#include "profiles.h"

const struct registers *registers_of(enum chip chip);
void registers_tell(const struct card_profile *profile, struct sim_registers *out);
/* An older class's channel is the same hardware. */
bool registers_show_get(enum chip chip, uint32_t channel_class);
#endif
