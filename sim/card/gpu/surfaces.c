/* Where the bytes of a copy's lines lie: one after the other, or in blocks of GOBs, which are 64 bytes wide
 * and 8 lines high, with pieces of 16 bytes that follow each other in the order of NVIDIA's TRM of Tegra X1
 * ("Block Linear"). */
#include "push.h"

enum { RUN_BYTES = 16, GOB_WIDTH = 64, GOB_LINES = 8, GOB_BYTES = 512 };

uint64_t surface_at(const struct surface *s, uint32_t line, uint32_t at, uint32_t *run)
{
    uint64_t x = (uint64_t)s->x + at, y = (uint64_t)s->y + line;
    uint64_t block_lines = (uint64_t)GOB_LINES << s->lines_log2;
    uint64_t across = (s->width + GOB_WIDTH - 1) / GOB_WIDTH,
             down = (s->height + block_lines - 1) / block_lines;
    uint64_t block, gob;

    if (!s->blocks) {
        *run = UINT32_MAX;
        return s->base + (uint64_t)line * s->pitch + at;
    }
    *run = RUN_BYTES - x % RUN_BYTES;
    block = ((s->layer >> s->layers_log2) * down + y / block_lines) * across + x / GOB_WIDTH;
    gob = block << (s->lines_log2 + s->layers_log2);
    gob += (s->layer & ((1u << s->layers_log2) - 1)) << s->lines_log2;
    gob += y % block_lines / GOB_LINES;
    return s->base + gob * GOB_BYTES + ((x >> 5 & 1) << 8) + ((y >> 1 & 3) << 6) + ((x >> 4 & 1) << 5) +
           ((y & 1) << 4) + x % RUN_BYTES;
}
