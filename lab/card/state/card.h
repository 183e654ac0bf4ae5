/* What the parts of the emulated card share. */
#ifndef MGPU_LAB_CARD_H
#define MGPU_LAB_CARD_H
#include "../../../sim/card/gpu/gpu.h"
#include "../facts/layout.h"
#include "../memory/tables.h"
#include "../vfu/device.h"
#include "chips.h"
#include <stdatomic.h>
#include <stdio.h>

enum { MIB = 1 << 20, BAR0_BYTES = 16 * MIB, BAR1_BYTES = 256 * MIB, BAR3_BYTES = 32 * MIB };
/* Writing to this byte of configuration space, which no capability has, takes it off the bus. */
enum { CONFIG_FALL_OFF = 0xf0 };
enum { CONFIG_BYTES = 4096, ROM_BYTES = 0x3000, DMEM_BYTES = 0x10000, EMEM_WORDS = 256 };
enum { FALCON_GSP, FALCON_SEC2, FALCONS };
enum { INTERRUPT_LEAVES = 16 };
/* What the GSP keeps at the end of the card's memory, and where in it the directories of BAR1 and BAR2 are.
 */
enum { RESERVED_MIB = 128, BAR1_DIRECTORY_MIB = 64, BAR2_DIRECTORY_MIB = 63 };

struct falcon {
    uint32_t base;
    uint32_t reg[0x800]; /* by offset / 4, as they were written */
    bool riscv_runs;
    uint8_t dmem[DMEM_BYTES];
};

struct interrupts {
    uint32_t leaf[INTERRUPT_LEAVES], enabled[INTERRUPT_LEAVES], top_enabled;
};

/* Where faults that can be replayed are written: pages of the guest's. */
enum { VECTOR_REPLAYABLE = 132, FAULT_PAGES = 256 };
struct fault_buffer {
    uint64_t page[FAULT_PAGES];
    atomic_uint entries; /* 0: there is none */
    uint32_t put;        /* below that; the driver can write what its register says */
};

struct gsp;

struct card {
    const struct chip *chip;
    const struct layout *layout;
    uint32_t slot; /* which of several it is: its UUID says so */
    struct device device;
    struct physical *physical;
    struct vaspace *bar1, *bar2;
    struct gpu *gpu;
    struct gpu_doorbell *doorbell;
    int ring_fd; /* of it */
    struct falcon falcon[FALCONS];
    struct interrupts interrupts;
    struct fault_buffer fault_buffer;
    struct gsp *gsp;
    uint8_t config[CONFIG_BYTES], rom[ROM_BYTES];
    uint32_t emem[EMEM_WORDS]; /* the driver's channel to FSP */
    uint32_t *reg;             /* all of BAR0, as it was written */
    bool off_bus;              /* whoever reads it gets ones */
    FILE *log;                 /* NULL: none */
    bool traced;               /* with every register */
    int report;                /* -1: none */
    uint64_t reported;
};

/* Client of every group in the account of the engines: whoever rings wakes them all. */
enum { ENGINE_CLIENT = 1 };

/* interrupts.c of the card. Any thread may. */
void interrupts_raise(struct card *card, uint32_t vector);

/* trace.c */
__attribute__((format(printf, 2, 3))) void card_log(struct card *card, const char *format, ...);
/* One line of the report: an answer that was asked for, and what it rests on. */
void card_report(struct card *card, const char *answer, bool made_up, const char *source);
#endif
