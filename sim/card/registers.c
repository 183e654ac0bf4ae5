#include "registers.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"

static const struct registers registers[CHIPS] = {
#define REGISTERS(chip, whole_card, status, stride, words, loads, saves, has_get) \
    [CHIP_##chip] = {whole_card, status, stride, words, loads, saves, has_get},
#include "facts/registers.def"
};

const struct registers *registers_of(enum chip chip)
{
    return &registers[chip];
}

void registers_tell(const struct card_profile *profile, struct sim_registers *out)
{
    const struct registers *r = &registers[profile->chip];

    *out = (struct sim_registers){
        .architecture = profile->architecture,
        .implementation = profile->implementation,
    };
    for (uint32_t number = 0; !r->whole_card && number <= profile->copy_engines; number++) {
        uint32_t runlist = registers_runlist(r, number), type = registers_engine_type(number);

        out->runlist[runlist].base = RUNLISTS_AT + runlist * RUNLIST_BYTES;
        out->runlist[runlist].engines |= type < 64 ? 1ull << type : 0;
        out->runlists = runlist + 1;
    }
    for (uint32_t type = 0; !r->whole_card && type < 64; type++) {
        if (!chip_has_video(profile->chip, type))
            continue;
        out->runlist[out->runlists].base = RUNLISTS_AT +
                                           registers_runlist(r, registers_number(type)) * RUNLIST_BYTES;
        out->runlist[out->runlists++].engines = UINT64_C(1) << type;
    }
}

bool registers_show_get(enum chip chip, uint32_t channel_class)
{
    return registers[chip].has_get && channel_class != BLACKWELL_CHANNEL_GPFIFO_A &&
           channel_class != BLACKWELL_CHANNEL_GPFIFO_B;
}
