#include "registers.h"
#include "../../rm/rm_abi.h"

/* Of runlists, at the multiples of 1 KiB that their bases are. */
enum { RUNLISTS_AT = 0x80000, RUNLIST_BYTES = 0x400, COPIES_BELOW_10 = 10 };

static const struct registers registers[CHIPS] = {
#define REGISTERS(chip, whole_card, status, stride, words, loads, saves, has_get) \
    [CHIP_##chip] = {whole_card, status, stride, words, loads, saves, has_get},
#include "facts/registers.def"
};

const struct registers *registers_of(enum chip chip)
{
    return &registers[chip];
}

/* 0: graphics; from 1 on the copy engines. */
static uint32_t engine_number(uint32_t engine_type)
{
    if (engine_type >= RM_ENGINE_COPY10)
        return engine_type - RM_ENGINE_COPY10 + COPIES_BELOW_10 + 1;
    return engine_type >= RM_ENGINE_COPY0 ? engine_type - RM_ENGINE_COPY0 + 1 : 0;
}

static uint32_t engine_type(uint32_t number)
{
    if (!number)
        return RM_ENGINE_GRAPHICS;
    return number <= COPIES_BELOW_10 ? RM_ENGINE_COPY0 + number - 1
                                     : RM_ENGINE_COPY10 + number - 1 - COPIES_BELOW_10;
}

/* The copy engines that are graphics' own share its runlist: as many as it has further words. */
static uint32_t runlist_of(const struct registers *r, uint32_t number)
{
    return number < r->words ? 0 : number - r->words + 1;
}

uint32_t registers_status(const struct registers *r, uint32_t type)
{
    uint32_t number = engine_number(type), runlist = runlist_of(r, number);

    if (r->whole_card)
        return number < r->words ? r->status + number * r->stride : 0;
    if (runlist >= SIM_RUNLISTS_MAX)
        return 0;
    return RUNLISTS_AT + runlist * RUNLIST_BYTES + r->status + (runlist ? 0 : number * r->stride);
}

void registers_tell(const struct card_profile *profile, struct sim_registers *out)
{
    const struct registers *r = &registers[profile->chip];

    *out = (struct sim_registers){
        .architecture = profile->architecture,
        .implementation = profile->implementation,
    };
    for (uint32_t number = 0; !r->whole_card && number <= profile->copy_engines; number++) {
        uint32_t runlist = runlist_of(r, number), type = engine_type(number);

        out->runlist[runlist].base = RUNLISTS_AT + runlist * RUNLIST_BYTES;
        out->runlist[runlist].engines |= type < 64 ? 1ull << type : 0;
        out->runlists = runlist + 1;
    }
}

bool registers_show_get(enum chip chip, uint32_t channel_class)
{
    return registers[chip].has_get && channel_class != BLACKWELL_CHANNEL_GPFIFO_A &&
           channel_class != BLACKWELL_CHANNEL_GPFIFO_B;
}
