/* The emulated card: what its parts share.
 *   main.c        the command line
 *   power.c       the card as its power goes on
 *   config.c      configuration space
 *   registers.c   BAR0, and what reading or writing there does
 *   windows.c     BAR1, BAR3 and PRAMIN: memory behind addresses
 *   interrupts.c  the tree of vectors, MSI
 *   falcons.c     microcontrollers that run nothing
 *   fsp.c         what boots Hopper's GSP in their place
 *   vbios.c       a VBIOS of our own
 *   state/        what all of these share; what differs between chips
 *   gsp/          the GSP's side of the message queues
 *   answers/      what it answers
 *   memory/, vfu/ memory by address; the socket
 * The thread that serves the socket does all of this. The engines (sim/card/gpu) have threads of their own,
 * so that no register waits for a copy. */
#ifndef MGPU_LAB_PARTS_H
#define MGPU_LAB_PARTS_H
#include "state/card.h"

/* config.c */
void config_start(struct card *card);
void config_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes);

/* registers.c. Reads and writes of other sizes than 4 are made of these. */
void registers_start(struct card *card);
void registers_read(struct card *card, uint64_t offset, uint8_t *to, uint32_t bytes);
void registers_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes);

/* windows.c */
void window_read(struct vaspace *vaspace, uint64_t address, uint8_t *to, uint32_t bytes);
void window_write(struct vaspace *vaspace, uint64_t address, const uint8_t *from, uint32_t bytes);
void pramin_read(struct card *card, uint64_t offset, uint8_t *to, uint32_t bytes);
void pramin_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes);

/* interrupts.c: offsets from the start of the virtual function's registers. False: it is none of these. */
bool interrupts_read(const struct card *card, uint32_t offset, uint32_t *value);
bool interrupts_write(struct card *card, uint32_t offset, uint32_t value);

/* falcons.c: the one that a register belongs to, or NULL. */
void falcons_start(struct card *card);
struct falcon *falcon_of(struct card *card, uint32_t offset);
uint32_t falcon_read(const struct card *card, const struct falcon *falcon, uint32_t offset);
void falcon_write(struct card *card, struct falcon *falcon, uint32_t offset, uint32_t value);

/* The GSP runs from now on; its arguments are in the guest's memory. */
void falcon_boot_gsp(struct card *card, uint64_t arguments);

/* fsp.c. False: it is none of its registers that do something. */
bool fsp_read(struct card *card, uint32_t at, uint32_t *value);
bool fsp_write(struct card *card, uint32_t at, uint32_t value);

/* vbios.c */
enum { VBIOS_COMMAND_AT = 0x100, VBIOS_MAPPER_AT = 0x40, VBIOS_INIT_COMMAND = 0x2c };
void vbios_make(uint8_t rom[ROM_BYTES], uint16_t device, bool signed_by_falcon);

/* power.c */
int card_start(struct card *card);
#endif
