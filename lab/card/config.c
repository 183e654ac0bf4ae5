#include "parts.h"
#include <string.h>

/* PCI's own layout, and VFIO's: QEMU keeps the BARs itself. */
enum { VENDOR = 0, COMMAND = 4, CLASS = 8, BARS = 0x10, BARS_END = 0x28, SUBSYSTEM = 0x2c, POINTER = 0x34 };
enum { INTERRUPT_PIN = 0x3d };
enum { CAP_POWER = 1, CAP_MSI = 5, CAP_EXPRESS = 0x10, MSI_64_BIT = 0x80, BAR_PREFETCH_64 = 0xc };
/* Where capabilities are: the driver reads Hopper's at fixed places (published dev_xtl_ep_pcfg_gpu.h). */
static const struct places {
    uint32_t power, msi, express;
} places[] = {{0x60, 0x68, 0x78}, {0x40, 0x48, 0x60}};
enum { NVIDIA = 0x10de, REVISION = 0xa1, CLASS_3D = 0x0302 };

static void put(struct card *card, uint32_t at, uint32_t value, uint32_t bytes)
{
    memcpy(&card->config[at], &value, bytes);
}

static void capability(struct card *card, uint32_t at, uint32_t id, uint32_t next)
{
    put(card, at, id, 1);
    put(card, at + 1, next, 1);
}

void config_start(struct card *card)
{
    const struct places *at = &places[card->chip->fsp];

    memset(card->config, 0, sizeof card->config);
    put(card, VENDOR, NVIDIA, 2);
    put(card, VENDOR + 2, card->chip->device, 2);
    put(card, COMMAND + 2, 0x10, 2); /* it has capabilities */
    put(card, CLASS, REVISION, 1);
    put(card, CLASS + 2, CLASS_3D, 2);
    for (uint32_t bar = 0; bar < BAR_KINDS; bar++)
        if (bar || card->chip->fsp)
            put(card, BARS + 4 * bar_region(card->chip, bar), BAR_PREFETCH_64, 4);
    put(card, SUBSYSTEM, NVIDIA, 2);
    put(card, SUBSYSTEM + 2, card->chip->subsystem, 2);
    put(card, POINTER, at->power, 1);
    put(card, INTERRUPT_PIN, 1, 1);
    capability(card, at->power, CAP_POWER, at->msi);
    put(card, at->power + 2, 3, 2);
    put(card, at->power + 4, 8, 4); /* no soft reset */
    capability(card, at->msi, CAP_MSI, at->express);
    put(card, at->msi + 2, MSI_64_BIT, 2);
    /* An endpoint of version 2, fourth generation, sixteen lanes. */
    capability(card, at->express, CAP_EXPRESS, 0);
    put(card, at->express + 2, 2, 2);
    put(card, at->express + 4, 0x10008fe1, 4);
    put(card, at->express + 8, 0x2910, 2);
    put(card, at->express + 12, 0x0045bd04, 4);
    put(card, at->express + 18, 0x1104, 2);
    put(card, at->express + 0x24, 0x70993, 4);
    put(card, at->express + 0x2c, 0x1e, 4);
}

void config_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        uint64_t at = offset + i;

        if (at < COMMAND || (at >= CLASS && at < BARS_END) || (at >= SUBSYSTEM && at <= POINTER))
            continue;
        card->config[at] = from[i];
    }
}
