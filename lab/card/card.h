/* The emulated card: what its parts share.
 *   main.c        the command line
 *   config.c      configuration space
 *   registers.c   BAR0, and what reading or writing there does
 *   windows.c     BAR1, BAR3 and PRAMIN: memory behind addresses
 *   interrupts.c  the tree of vectors, MSI
 *   falcons.c     microcontrollers that run nothing
 *   vbios.c       a VBIOS of our own
 *   chips.c       what differs between chips
 *   gsp/          the GSP's side of the message queues
 *   memory/, vfu/ memory by address; the socket
 * The thread that serves the socket does all of this. The engines (sim/card/gpu) have threads of their own,
 * so that no register waits for a copy. */
#ifndef MGPU_LAB_CARD_H
#define MGPU_LAB_CARD_H
#include "../../sim/card/gpu/gpu.h"
#include "chips.h"
#include "facts/layout.h"
#include "memory/tables.h"
#include "vfu/device.h"
#include <stdio.h>

enum { MIB = 1 << 20, BAR0_BYTES = 16 * MIB, BAR1_BYTES = 256 * MIB, BAR3_BYTES = 32 * MIB };
enum { CONFIG_BYTES = 4096, ROM_BYTES = 0x3000, DMEM_BYTES = 0x10000 };
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

struct gsp;

struct card {
    const struct chip *chip;
    const struct layout *layout;
    uint32_t slot; /* which of several it is: its UUID says so */
    struct device device;
    struct physical *physical;
    struct space *bar1, *bar2;
    struct gpu *gpu;
    struct gpu_doorbell *doorbell;
    int ring_fd; /* of it */
    struct falcon falcon[FALCONS];
    struct interrupts interrupts;
    struct gsp *gsp;
    uint8_t config[CONFIG_BYTES], rom[ROM_BYTES];
    uint32_t *reg; /* all of BAR0, as it was written */
    FILE *log;     /* NULL: none */
    bool traced;   /* with every register */
    int report;    /* -1: none */
    uint64_t reported;
};

/* Client of every group in the account of the engines: whoever rings wakes them all. */
enum { ENGINE_CLIENT = 1 };

/* config.c */
void config_start(struct card *card);
void config_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes);

/* registers.c. Reads and writes of other sizes than 4 are made of these. */
void registers_start(struct card *card);
void registers_read(struct card *card, uint64_t offset, uint8_t *to, uint32_t bytes);
void registers_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes);

/* windows.c */
void window_read(struct space *space, uint64_t address, uint8_t *to, uint32_t bytes);
void window_write(struct space *space, uint64_t address, const uint8_t *from, uint32_t bytes);
void pramin_read(struct card *card, uint64_t offset, uint8_t *to, uint32_t bytes);
void pramin_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes);

/* interrupts.c: offsets from the start of the virtual function's registers. False: it is none of these. */
bool interrupts_read(const struct card *card, uint32_t offset, uint32_t *value);
bool interrupts_write(struct card *card, uint32_t offset, uint32_t value);
void interrupts_raise(struct card *card, uint32_t vector);

/* falcons.c: the one that a register belongs to, or NULL. */
void falcons_start(struct card *card);
struct falcon *falcon_of(struct card *card, uint32_t offset);
uint32_t falcon_read(const struct card *card, const struct falcon *falcon, uint32_t offset);
void falcon_write(struct card *card, struct falcon *falcon, uint32_t offset, uint32_t value);

/* vbios.c */
enum { VBIOS_COMMAND_AT = 0x100, VBIOS_MAPPER_AT = 0x40, VBIOS_INIT_COMMAND = 0x2c };
void vbios_make(uint8_t rom[ROM_BYTES], uint16_t device, bool signed_by_falcon);

/* trace.c */
__attribute__((format(printf, 2, 3))) void card_log(struct card *card, const char *format, ...);
/* One line of the report: an answer that was asked for, and what it rests on. */
void card_report(struct card *card, const char *answer, bool made_up, const char *source);

/* card.c: as after the power went off and on. */
void card_power_cycle(struct card *card);
int card_start(struct card *card);
#endif
