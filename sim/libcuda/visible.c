#include "cuda.h"
#include <stdlib.h>
#include <string.h>

/* The card that an entry means: an index, or the beginning of a UUID that only one card has. -1 = none. */
static int card_of(const struct rmc *rm, const char *entry, size_t length)
{
    int found = -1;

    if (*entry >= '0' && *entry <= '9') {
        char *end;
        unsigned long index = strtoul(entry, &end, 10);

        return end == entry + length && index < rm->card_count ? (int)index : -1;
    }
    if (length < strlen("GPU-") + 1 || strncmp(entry, "GPU-", strlen("GPU-")))
        return -1;
    for (uint32_t i = 0; i < rm->card_count; i++) {
        if (strncmp(rm->cards[i].uuid, entry, length))
            continue;
        if (found >= 0)
            return -1;
        found = (int)i;
    }
    return found;
}

/* CUDA_VISIBLE_DEVICES: the list counts up to its first entry that names no card; a card named twice makes
 * the whole list empty. */
uint32_t visible_cards(const struct rmc *rm, uint32_t order[RM_MAX_CARDS])
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t count = 0;

    if (!list) {
        for (; count < rm->card_count; count++)
            order[count] = count;
        return count;
    }
    for (;;) {
        size_t length;
        int card;

        list += strspn(list, " ");
        length = strcspn(list, ", ");
        card = card_of(rm, list, length);
        if (card < 0)
            return count;
        for (uint32_t i = 0; i < count; i++)
            if (order[i] == (uint32_t)card)
                return 0;
        order[count++] = (uint32_t)card;
        list += length;
        list += strspn(list, " ");
        if (*list++ != ',')
            return count;
    }
}
