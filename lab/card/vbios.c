/* A VBIOS of our own, as small as the driver's parser allows: a PCI expansion ROM, its BIT table, and a table
 * of falcon code with one entry whose code is zeros. Nothing of it is NVIDIA's. Turing's descriptor has
 * version 2; from GA10x on it is version 3, with a signature that nobody verifies here.
 * What is read of it: kernel_gsp_vbios_tu102.c and kernel_gsp_fwsec.c of the open driver. */
#include "parts.h"
#include <string.h>

enum {
    PCI_DATA = 0x40,
    BIT = 0x200,
    BIOS_DATA = 0x300,
    FALCON_DATA = 0x340,
    CODES = 0x380,
    DESCRIPTOR = 0x400
};
enum { TOKEN_BIOS_DATA = 0x42, TOKEN_FALCON_DATA = 0x70, FWSEC_PRODUCTION = 0x85 };
enum { CODE_BYTES = 0x800, DATA_BYTES = 0x800, STORED_BYTES = 0x1000, INTERFACES_AT = 0x20 };
enum { SIGNATURE_BYTES = 384, DESCRIPTOR_2_BYTES = 60, DESCRIPTOR_3_BYTES = 44 };

struct writer {
    uint8_t *rom;
    uint32_t at;
};

static void put(struct writer *w, uint64_t value, uint32_t bytes)
{
    memcpy(w->rom + w->at, &value, bytes);
    w->at += bytes;
}

static void put_words(uint8_t *rom, uint32_t at, const uint32_t *word, uint32_t count)
{
    memcpy(rom + at, word, count * sizeof *word);
}

static void pci_rom(uint8_t *rom, uint16_t device)
{
    struct writer w = {rom, 0};

    put(&w, 0xaa55, 2);
    put(&w, ROM_BYTES / 512, 1);
    w.at = 0x18;
    put(&w, PCI_DATA, 2);
    w.at = PCI_DATA;
    put(&w, 0x52494350, 4); /* "PCIR" */
    put(&w, 0x10de, 2);
    put(&w, device, 2);
    put(&w, 0, 2);
    put(&w, 0x18, 2); /* of this structure */
    put(&w, 0x03000000, 4);
    put(&w, ROM_BYTES / 512, 2);
    put(&w, 0, 2);
    put(&w, 0x8000, 2); /* the last image, of type 0 */
}

static void bit_token(struct writer *w, uint32_t id, uint32_t version, uint32_t bytes, uint32_t at)
{
    put(w, id, 1);
    put(w, version, 1);
    put(w, bytes, 2);
    put(w, at, 2);
}

static void bit_table(uint8_t *rom)
{
    struct writer w = {rom, BIT};
    uint8_t sum = 0;

    put(&w, 0xb8ff, 2);
    put(&w, 0x00544942, 4); /* "BIT" */
    put(&w, 0x0100, 2);
    put(&w, 12, 1); /* of the header */
    put(&w, 6, 1);  /* of a token */
    put(&w, 2, 1);
    for (uint32_t i = BIT; i < w.at; i++)
        sum += rom[i];
    put(&w, (uint8_t)-sum, 1);
    bit_token(&w, TOKEN_BIOS_DATA, 2, 0x20, BIOS_DATA);
    bit_token(&w, TOKEN_FALCON_DATA, 2, 4, FALCON_DATA);
    w.at = BIOS_DATA;
    put(&w, 0x92000000, 4); /* version 92.00.00.00.01 */
    put(&w, 1, 1);
    w.at = FALCON_DATA;
    put(&w, CODES, 4);
}

/* Where its data begins. */
static uint32_t descriptor_3(uint8_t *rom)
{
    const uint32_t bytes = DESCRIPTOR_3_BYTES + SIGNATURE_BYTES;
    /* Stored bytes, place of the key, interfaces; code: from, bytes, to; data: from, bytes. */
    const uint32_t words[] = {
        1 | 3 << 8 | bytes << 16, STORED_BYTES, 0x400, INTERFACES_AT, 0, CODE_BYTES, 0, 0, DATA_BYTES};
    struct writer w = {rom, DESCRIPTOR + sizeof words};

    put_words(rom, DESCRIPTOR, words, sizeof words / sizeof words[0]);
    put(&w, 1, 2); /* for which engines */
    put(&w, 1, 1); /* code id */
    put(&w, 1, 1); /* signatures */
    put(&w, 1, 2); /* their versions */
    return DESCRIPTOR + bytes + CODE_BYTES;
}

static uint32_t descriptor_2(uint8_t *rom)
{
    /* Stored bytes twice, entry, interfaces; code: from, bytes, to, secure from, secure bytes; data: offset,
     * from, bytes; the last two again. */
    const uint32_t words[] = {1 | 2 << 8 | DESCRIPTOR_2_BYTES << 16,
                              STORED_BYTES,
                              STORED_BYTES,
                              0,
                              INTERFACES_AT,
                              0,
                              CODE_BYTES,
                              0,
                              0x400,
                              0x400,
                              CODE_BYTES,
                              0,
                              DATA_BYTES,
                              CODE_BYTES,
                              DATA_BYTES};

    put_words(rom, DESCRIPTOR, words, sizeof words / sizeof words[0]);
    return DESCRIPTOR + DESCRIPTOR_2_BYTES + CODE_BYTES;
}

/* Two interfaces; the second says where commands go. */
static void interfaces(uint8_t *rom, uint32_t data)
{
    const uint32_t entries[] = {1, 0x80, 4, VBIOS_MAPPER_AT};
    struct writer w = {rom, data + INTERFACES_AT};

    put(&w, 1 | 4 << 8 | 8 << 16 | 2 << 24, 4);
    put_words(rom, w.at, entries, 4);
    w.at = data + VBIOS_MAPPER_AT;
    put(&w, 0x50414d44, 4); /* "DMAP" */
    put(&w, 3, 2);
    put(&w, 0x40, 2);
    put(&w, VBIOS_COMMAND_AT, 4);
    put(&w, 0x80, 4);
    put(&w, 0x180, 4);
    put(&w, 0x80, 4);
}

void vbios_make(uint8_t rom[ROM_BYTES], uint16_t device, bool signed_by_falcon)
{
    struct writer w = {rom, CODES};

    memset(rom, 0, ROM_BYTES);
    pci_rom(rom, device);
    bit_table(rom);
    put(&w, 1, 1);
    put(&w, 6, 1);
    put(&w, 6, 1);
    put(&w, 1, 1); /* code */
    put(&w, signed_by_falcon ? 3 : 2, 1);
    put(&w, signed_by_falcon ? DESCRIPTOR_3_BYTES : DESCRIPTOR_2_BYTES, 1);
    put(&w, FWSEC_PRODUCTION, 2);
    put(&w, DESCRIPTOR, 4);
    interfaces(rom, signed_by_falcon ? descriptor_3(rom) : descriptor_2(rom));
}
