/* Leaves of 32 vectors each, and a register above them with a bit for every two leaves (published
 * dev_vm.h: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_*). */
#include "parts.h"

enum { LEAF = 0x1000, ENABLE = 0x1200, DISABLE = 0x1400, LEAF_BYTES = 0x40 };
enum { TOP = 0x1600, TOP_ENABLE = 0x1608, TOP_DISABLE = 0x1610, TRIGGER = 0x1640, VECTOR_MASK = 0xfff };

static uint32_t top(const struct interrupts *in)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < INTERRUPT_LEAVES; i++)
        if (in->leaf[i] & in->enabled[i])
            found |= 1u << i / 2;
    return found;
}

static void fire(struct card *card)
{
    if (top(&card->interrupts) & card->interrupts.top_enabled)
        card_log(card, "interrupt %s", device_interrupt(&card->device) ? "sent" : "not wanted");
}

void interrupts_raise(struct card *card, uint32_t vector)
{
    if (vector / 32 >= INTERRUPT_LEAVES)
        return;
    /* An engine's thread raises faults. */
    __atomic_fetch_or(&card->interrupts.leaf[vector / 32], 1u << vector % 32, __ATOMIC_ACQ_REL);
    fire(card);
}

static bool in_leaves(uint32_t offset, uint32_t base)
{
    return offset >= base && offset < base + LEAF_BYTES;
}

bool interrupts_read(const struct card *card, uint32_t offset, uint32_t *value)
{
    const struct interrupts *in = &card->interrupts;
    uint32_t i = offset % LEAF_BYTES / 4;

    if (in_leaves(offset, LEAF))
        *value = in->leaf[i];
    else if (in_leaves(offset, ENABLE) || in_leaves(offset, DISABLE))
        *value = in->enabled[i];
    else if (offset == TOP)
        *value = top(in);
    else if (offset == TOP_ENABLE || offset == TOP_DISABLE)
        *value = in->top_enabled;
    else
        return false;
    return true;
}

bool interrupts_write(struct card *card, uint32_t offset, uint32_t value)
{
    struct interrupts *in = &card->interrupts;
    uint32_t i = offset % LEAF_BYTES / 4;

    if (in_leaves(offset, LEAF)) {
        __atomic_fetch_and(&in->leaf[i], ~value, __ATOMIC_ACQ_REL);
    } else if (in_leaves(offset, ENABLE)) {
        in->enabled[i] |= value;
        fire(card);
    } else if (in_leaves(offset, DISABLE)) {
        in->enabled[i] &= ~value;
    } else if (offset == TOP_ENABLE) {
        in->top_enabled |= value;
        fire(card);
    } else if (offset == TOP_DISABLE) {
        in->top_enabled &= ~value;
    } else if (offset == TRIGGER) {
        interrupts_raise(card, value & VECTOR_MASK);
    } else {
        return false;
    }
    return true;
}
