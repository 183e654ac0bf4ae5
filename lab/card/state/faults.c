/* Faults that can be replayed: entries of 32 bytes in a ring of the guest's pages, with registers for both
 * ends (published dev_vm.h and clc369.h). Only graphics makes such faults. */
#include "faults.h"
#include "../../../base/clock.h"
#include <string.h>

enum { GET = 0xb83028, PUT = 0xb8302c, PLACE_MASK = 0xfffff };
enum { BYTES_AT = 8, PAGES_AT = 16, PAGE_BYTES = 4096, ENTRY_BYTES = 32 };
enum { APERTURE_COHERENT = 2 << 8, ENGINE_GRAPHICS = 64, ENGINE_GRAPHICS_OF_HOPPER = 384 };
/* Of the last word: a page's entry is invalid, where the front end writes by the hub. */
enum { TYPE_PTE = 2, REPLAYABLE = 1 << 7, CLIENT_FE = 4 << 8, WRITES = 1 << 16, BY_HUB = 1 << 20 };
#define REPLAYABLE_ENABLED (1u << 30)
#define VALID              (1u << 31)

void faults_register(struct card *card, const uint8_t *params, uint32_t bytes)
{
    struct fault_buffer *buffer = &card->fault_buffer;
    uint32_t ring_bytes;

    if (bytes < PAGES_AT + sizeof buffer->page)
        return;
    memcpy(&ring_bytes, params + BYTES_AT, sizeof ring_bytes);
    memcpy(buffer->page, params + PAGES_AT, sizeof buffer->page);
    card->reg[GET / 4] = card->reg[PUT / 4] = buffer->put = 0;
    if (ring_bytes <= FAULT_PAGES * PAGE_BYTES)
        buffer->entries = ring_bytes / ENTRY_BYTES;
}

void faults_unregister(struct card *card)
{
    card->fault_buffer.entries = 0;
}

uint64_t faults_instance(uint64_t address, bool video)
{
    return address | (video ? 0 : APERTURE_COHERENT);
}

bool faults_tell(void *of, uint64_t instance, uint64_t address)
{
    struct card *card = of;
    struct fault_buffer *buffer = &card->fault_buffer;
    uint32_t entries = buffer->entries, put = buffer->put, next = entries ? (put + 1) % entries : 0;
    uint64_t at = (uint64_t)put * ENTRY_BYTES, now_ns = monotonic_ns();
    uint32_t engine = card->chip->fsp ? ENGINE_GRAPHICS_OF_HOPPER : ENGINE_GRAPHICS;
    const uint32_t last = VALID | REPLAYABLE_ENABLED | BY_HUB | WRITES | CLIENT_FE | REPLAYABLE | TYPE_PTE;
    const uint64_t pairs[] = {instance, address & ~(PAGE_BYTES - UINT64_C(1)), now_ns};
    const uint32_t words[] = {engine, last};
    struct where to = {HOST, 0};

    if (!entries || next == (card->reg[GET / 4] & PLACE_MASK))
        return false;
    to.address = buffer->page[at / PAGE_BYTES] + at % PAGE_BYTES;
    if (!physical_write(card->physical, to, pairs, sizeof pairs))
        return false;
    to.address += sizeof pairs; /* the driver looks at the last word first */
    if (!physical_write(card->physical, to, words, sizeof words))
        return false;
    buffer->put = next;
    __atomic_store_n(&card->reg[PUT / 4], next, __ATOMIC_RELEASE);
    card_log(card, "fault at %#llx of %#llx", (unsigned long long)address, (unsigned long long)instance);
    interrupts_raise(card, VECTOR_REPLAYABLE);
    return true;
}

void faults_taken(struct card *card)
{
    if ((card->reg[GET / 4] & PLACE_MASK) != card->fault_buffer.put)
        interrupts_raise(card, VECTOR_REPLAYABLE);
}
