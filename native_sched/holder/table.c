#include "table.h"
#include <stdlib.h>
#include <unistd.h>

struct held held[HELD_MAX];
static uint64_t next_id = 1;
static size_t texts_bytes;
static uint32_t count;

void held_number_from(uint64_t first)
{
    if (first > next_id)
        next_id = first;
}

uint64_t held_next_id(void)
{
    return next_id;
}

static struct held *slot_of(uint64_t id)
{
    for (struct held *h = held; h < held + HELD_MAX; h++)
        if (h->id == id)
            return h;
    return NULL;
}

struct held *held_find(uint64_t id)
{
    return id ? slot_of(id) : NULL;
}

struct held *held_add(uint64_t id, int fd, char *text, size_t text_bytes)
{
    struct held *h = slot_of(0);
    char *shortened;

    if (!h || texts_bytes + text_bytes > TEXTS_MAX)
        return NULL;
    if (!id)
        id = next_id;
    held_number_from(id + 1);
    if ((shortened = realloc(text, text_bytes ? text_bytes : 1)))
        text = shortened;
    texts_bytes += text_bytes;
    count++;
    *h = (struct held){.id = id, .fd = fd, .text = text, .text_bytes = text_bytes};
    return h;
}

void held_drop(struct held *h)
{
    close(h->fd);
    free(h->text);
    texts_bytes -= h->text_bytes;
    count--;
    *h = (struct held){0};
}

uint32_t held_count(void)
{
    return count;
}
