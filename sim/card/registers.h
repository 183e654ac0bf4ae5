/* Registers that tell what a card's engines do, and what RM says of where they are. Everything else of BAR0
 * reads as 0, also what lies elsewhere on another chip: on GB202 an interrupt's retrigger is where GA100 has
 * the first engine's status. */
#ifndef MGPU_SIM_REGISTERS_H
#define MGPU_SIM_REGISTERS_H
#include "../abi/channel_abi.h"
#include "profiles.h"

struct registers {
    bool whole_card; /* one list of engines, before Ampere; else each runlist has its own */
    uint32_t status, stride, words;
    uint32_t loads, saves; /* the context status meanwhile */
    bool has_get;          /* the host writes GP_GET back to USERD */
};

const struct registers *registers_of(enum chip chip);
/* Where the status of that engine is, as RM numbers engines; 0: there is no such word. */
uint32_t registers_status(const struct registers *registers, uint32_t engine_type);
void registers_tell(const struct card_profile *profile, struct sim_registers *out);
/* An older class's channel is the same hardware. */
bool registers_show_get(enum chip chip, uint32_t channel_class);
#endif
