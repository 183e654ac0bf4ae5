/* The GSP's and SEC2's microcontrollers. They run nothing: whatever the driver starts on them is done at
 * once, and what it would have left behind is made here. Registers: published dev_falcon_v4.h,
 * dev_riscv_pri.h. */
#include "gsp/gsp.h"
#include "parts.h"
#include <string.h>

enum { GSP_BASE = 0x110000, SEC2_BASE = 0x840000, FALCON_BYTES = 0x2000 };
enum {
    MAILBOX0 = 0x40,
    MAILBOX1 = 0x44,
    HWCFG2 = 0xf4,
    CPUCTL = 0x100,
    HWCFG = 0x108,
    DMATRFBASE = 0x110,
    DMATRFCMD = 0x118,
    DMATRFBASE1 = 0x128,
    CPUCTL_ALIAS = 0x130,
    DMEMC = 0x1c0,
    DMEMD = 0x1c4,
    RISCV_STATUS_TU102 = 0x1240,
    RISCV_CPUCTL = 0x1388,
    BCR_CTRL = 0x1668,
};
enum { STARTCPU = 2, HALTED = 0x10, TRANSFER_IDLE = 2, RISCV_IS_THERE = 1 << 10, BCR_VALID = 1 };
#define RESET_READY (1u << 31)
/* Turing's falcons have a loader, whose description (RM_FLCN_BL_DMEM_DESC) says where the data lies. */
enum { LOADER_DATA_AT = 64 };
enum { IMEM_BLOCKS = 0x100, DMEM_BLOCKS = 0x100, DMEM_ADDRESS_MASK = 0xffffff };
enum { WPR2_LO = 0x1fa824, WPR2_HI = 0x1fa828, FRTS = 0x15, FRTS_4K = 0x100, FRTS_OFFSET_AT = 32 };
#define UNLOAD_ASKED     UINT64_C(0xff000000ff)
#define UNLOAD_ASKED_NEW UINT64_C(0xdeaddeaddeaddead)

void falcons_start(struct card *card)
{
    memset(card->falcon, 0, sizeof card->falcon);
    card->falcon[FALCON_GSP].base = GSP_BASE;
    card->falcon[FALCON_SEC2].base = SEC2_BASE;
}

struct falcon *falcon_of(struct card *card, uint32_t offset)
{
    for (uint32_t i = 0; i < FALCONS; i++)
        if (offset >= card->falcon[i].base && offset < card->falcon[i].base + FALCON_BYTES)
            return &card->falcon[i];
    return NULL;
}

uint32_t falcon_read(const struct card *card, const struct falcon *falcon, uint32_t offset)
{
    (void)card;
    switch (offset) {
    case CPUCTL:
        return HALTED;
    case HWCFG2:
        return RISCV_IS_THERE | RESET_READY;
    case HWCFG:
        return IMEM_BLOCKS | DMEM_BLOCKS << 9;
    case DMATRFCMD:
        return TRANSFER_IDLE;
    case 0x10c: /* DMACTL: nothing is required, nothing is pending */
        return 0;
    case RISCV_STATUS_TU102:
        return falcon->riscv_runs;
    case RISCV_CPUCTL:
        return falcon->riscv_runs ? 0x80 : 0;
    case BCR_CTRL:
        return falcon->reg[offset / 4] | BCR_VALID;
    default:
        return falcon->reg[offset / 4];
    }
}

static uint64_t pair(const struct falcon *falcon, uint32_t low, uint32_t high)
{
    return falcon->reg[low / 4] | (uint64_t)falcon->reg[high / 4] << 32;
}

/* FWSEC: the command is in the data that the driver prepared, where our VBIOS says. */
static void gsp_started(struct card *card, struct falcon *falcon)
{
    uint8_t data[VBIOS_COMMAND_AT + 0x100] = {0};
    uint64_t base = pair(falcon, DMATRFBASE, DMATRFBASE1) << 8;
    uint32_t command, offset_4k;

    if (!card->chip->falcons_by_dma)
        memcpy(&base, falcon->dmem + LOADER_DATA_AT, sizeof base);
    physical_read(card->physical, (struct where){HOST, base}, data, sizeof data);
    memcpy(&command, data + VBIOS_MAPPER_AT + VBIOS_INIT_COMMAND, sizeof command);
    memcpy(&offset_4k, data + VBIOS_COMMAND_AT + FRTS_OFFSET_AT, sizeof offset_4k);
    card_log(card, "FWSEC: command %#x, FRTS at %#llx", command, (unsigned long long)offset_4k << 12);
    card_report(card, "falcon:FWSEC", true,
                "runs nothing; WPR2 as the driver's kernel_gsp_frts_tu102.c checks it");
    if (command == FRTS) {
        card->reg[WPR2_LO / 4] = offset_4k << 4;
        card->reg[WPR2_HI / 4] = (offset_4k + FRTS_4K) << 4;
    }
    falcon->reg[MAILBOX0 / 4] = 0;
}

void falcon_boot_gsp(struct card *card, uint64_t arguments)
{
    struct falcon *gsp = &card->falcon[FALCON_GSP];

    gsp->riscv_runs = true;
    gsp_boot(card->gsp, arguments);
    gsp->reg[MAILBOX0 / 4] = gsp->reg[MAILBOX1 / 4] = 0;
}

/* Booter: it checks nothing here, and starts the GSP, or ends it. */
static void sec2_started(struct card *card, struct falcon *falcon)
{
    struct falcon *gsp = &card->falcon[FALCON_GSP];
    uint64_t argument = pair(falcon, MAILBOX0, MAILBOX1);
    uint32_t mib = (uint32_t)(physical_video_bytes(card->physical) / MIB);

    card_log(card, "booter: %#llx", (unsigned long long)argument);
    card_report(card, "falcon:booter", true,
                "runs nothing; registers as kernel_gsp_booter_tu102.c checks them");
    falcon->reg[MAILBOX0 / 4] = falcon->reg[MAILBOX1 / 4] = 0;
    if (argument == UNLOAD_ASKED || argument == UNLOAD_ASKED_NEW) {
        card->reg[WPR2_LO / 4] = card->reg[WPR2_HI / 4] = 0;
        gsp->riscv_runs = false;
        return;
    }
    if (!card->reg[WPR2_HI / 4]) {
        card->reg[WPR2_LO / 4] = (mib - RESERVED_MIB) << 12;
        card->reg[WPR2_HI / 4] = (mib - 1) << 12;
    }
    falcon_boot_gsp(card, pair(gsp, MAILBOX0, MAILBOX1));
}

/* Data that is written word by word; the address moves on. */
static void dmem_write(struct falcon *falcon, uint32_t value)
{
    uint32_t *control = &falcon->reg[DMEMC / 4], at = *control & DMEM_ADDRESS_MASK;

    if (at <= DMEM_BYTES - sizeof value)
        memcpy(&falcon->dmem[at], &value, sizeof value);
    *control = (*control & ~(uint32_t)DMEM_ADDRESS_MASK) | ((at + 4) & DMEM_ADDRESS_MASK);
}

void falcon_write(struct card *card, struct falcon *falcon, uint32_t offset, uint32_t value)
{
    if ((offset == CPUCTL || offset == CPUCTL_ALIAS) && value & STARTCPU) {
        if (falcon == &card->falcon[FALCON_GSP])
            gsp_started(card, falcon);
        else
            sec2_started(card, falcon);
        return;
    }
    falcon->reg[offset / 4] = value;
    if (offset == DMEMD)
        dmem_write(falcon, value);
}
