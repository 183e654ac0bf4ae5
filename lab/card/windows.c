#include "parts.h"
#include <string.h>

enum { PRAMIN = 0x700000, WINDOW = 0x1700, WINDOW_OF_HOPPER = 0x10fd40 };
enum { WINDOW_MASK = 0xffffff, WINDOW_SHIFT = 16 };

void window_read(struct vaspace *vaspace, uint64_t address, uint8_t *to, uint32_t bytes)
{
    struct view view;

    while (bytes && vaspace_view(vaspace, address, bytes, &view)) {
        memcpy(to, view_at(&view), view.bytes);
        view_put(&view);
        to += view.bytes;
        address += view.bytes;
        bytes -= (uint32_t)view.bytes;
    }
    memset(to, 0xff, bytes); /* what a bus answers where nobody does */
}

void window_write(struct vaspace *vaspace, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    struct view view;

    while (bytes && vaspace_view(vaspace, address, bytes, &view)) {
        memcpy(view_at(&view), from, view.bytes);
        view_put(&view);
        from += view.bytes;
        address += view.bytes;
        bytes -= (uint32_t)view.bytes;
    }
}

static struct where pramin_at(const struct card *card, uint64_t offset)
{
    uint32_t window = card->chip->fsp ? WINDOW_OF_HOPPER : WINDOW;
    uint64_t base = (uint64_t)(card->reg[window / 4] & WINDOW_MASK) << WINDOW_SHIFT;

    return (struct where){VIDEO, base + offset - PRAMIN};
}

void pramin_read(struct card *card, uint64_t offset, uint8_t *to, uint32_t bytes)
{
    if (!physical_read(card->physical, pramin_at(card, offset), to, bytes))
        memset(to, 0xff, bytes);
}

void pramin_write(struct card *card, uint64_t offset, const uint8_t *from, uint32_t bytes)
{
    physical_write(card->physical, pramin_at(card, offset), from, bytes);
}
