/* Hopper's FSP, which boots the GSP in place of FWSEC and the booter: packets of MCTP in a channel of its
 * EMEM, a register for each end of the two queues (kern_fsp.c and kern_fsp_gh100.c of the open driver;
 * published dev_fsp_pri.h of GH100). It verifies nothing here, and starts the GSP as GSP-FMC would have done.
 */
#include "parts.h"
#include <string.h>

enum { EMEM_CONTROL = 0x8f2ac0, EMEM_DATA = 0x8f2ac4, EMEM_OFFSET = 0xfffc };
#define ADVANCE_ON_WRITE (1u << 24)
#define ADVANCE_ON_READ  (1u << 25)
enum { COMMAND_HEAD = 0x8f2c00, COMMAND_TAIL = 0x8f2c04, MESSAGE_HEAD = 0x8f2c80, MESSAGE_TAIL = 0x8f2c84 };
/* What a packet begins with: MCTP's header, and one of NVIDIA's type of message. */
#define WHOLE_MESSAGE UINT32_C(0xc0000000)
#define OF_NVIDIA     UINT32_C(0x10de7e)
enum { TYPE_SHIFT = 24, CHAIN_OF_TRUST = 0x14, RESPONSE = 0x15, PAYLOAD_AT = 8 };
enum { OK = 0, NOT_SUPPORTED = 0xa0 };

static uint32_t *word(struct card *card, uint32_t advance)
{
    uint32_t *control = &card->reg[EMEM_CONTROL / 4], at = (*control & EMEM_OFFSET) / 4;

    if (*control & advance)
        *control = (*control & ~(uint32_t)EMEM_OFFSET) | ((at + 1) * 4 & EMEM_OFFSET);
    return &card->emem[at % EMEM_WORDS];
}

static uint64_t payload(const struct card *card, uint32_t at)
{
    uint64_t value;

    memcpy(&value, (const uint8_t *)card->emem + PAYLOAD_AT + at, sizeof value);
    return value;
}

/* The GSP's arguments are said in a structure for GSP-FMC, whose place the command says. */
static void boot(struct card *card)
{
    const uint32_t *at = card->layout->value;
    uint64_t told = payload(card, at[AT_cot_arguments]), arguments = 0;

    physical_read(card->physical, (struct where){HOST, told + at[AT_fmc_arguments]}, &arguments,
                  sizeof arguments);
    card_log(card, "FSP: GSP-FMC's arguments at %#llx, the GSP's at %#llx", (unsigned long long)told,
             (unsigned long long)arguments);
    card_report(card, "fsp:COT", true, "verifies nothing; boots as kernel_gsp_gh100.c waits for it");
    falcon_boot_gsp(card, arguments);
}

static void command(struct card *card)
{
    uint32_t type = card->emem[1] >> TYPE_SHIFT;
    bool known = card->emem[0] >> 30 == WHOLE_MESSAGE >> 30 && type == CHAIN_OF_TRUST;

    if (known)
        boot(card);
    else
        card_log(card, "FSP: %08x %08x is no command that it knows", card->emem[0], card->emem[1]);
    card->emem[0] = WHOLE_MESSAGE;
    card->emem[1] = OF_NVIDIA | (uint32_t)RESPONSE << TYPE_SHIFT;
    card->emem[2] = 0; /* its task */
    card->emem[3] = type;
    card->emem[4] = known ? OK : NOT_SUPPORTED;
    card->reg[COMMAND_HEAD / 4] = card->reg[COMMAND_TAIL / 4];
    card->reg[MESSAGE_HEAD / 4] = 0;
    card->reg[MESSAGE_TAIL / 4] = 4 * sizeof card->emem[0]; /* the last word */
}

bool fsp_read(struct card *card, uint32_t at, uint32_t *value)
{
    if (at == EMEM_DATA)
        *value = *word(card, ADVANCE_ON_READ);
    return at == EMEM_DATA;
}

bool fsp_write(struct card *card, uint32_t at, uint32_t value)
{
    if (at == EMEM_DATA) {
        *word(card, ADVANCE_ON_WRITE) = value;
        return true;
    }
    /* The head is written last. */
    if (at == COMMAND_HEAD && value != card->reg[COMMAND_TAIL / 4]) {
        command(card);
        return true;
    }
    return false;
}
