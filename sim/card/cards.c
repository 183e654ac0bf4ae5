#include "registers.h"
#include "rm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PCI_SLOT = 0x09, MAX_PCI_SLOT = 0x1f };

static uint64_t fnv1a(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

/* The same list of cards has the same UUIDs every time on one machine: node configuration can name them. */
static void card_name(struct sim_card *card, uint32_t machine)
{
    char seed[64];
    uint64_t high, low;

    snprintf(seed, sizeof seed, "%s/%u", card->profile->key, card->index);
    high = fnv1a(seed) + ((uint64_t)machine << 32);
    snprintf(seed, sizeof seed, "%u/%s", card->index, card->profile->name);
    low = fnv1a(seed);
    snprintf(card->uuid, sizeof card->uuid, "GPU-%08x-%04x-4%03x-%04x-%012llx", (uint32_t)(high >> 32),
             (uint32_t)(high >> 16) & 0xffffu, (uint32_t)high & 0xfffu,
             0x8000u | ((uint32_t)(low >> 48) & 0x3fffu), (unsigned long long)(low & 0xffffffffffffu));
    snprintf(card->pci, sizeof card->pci, "00000000:%02X:%02X.0", card->gpu_id >> 8, card->pci_slot);
}

static struct sim_card *card_init(struct rm *rm, const struct card_profile *profile)
{
    uint32_t index = rm->card_count;
    uint32_t slots = MAX_PCI_SLOT - FIRST_PCI_SLOT + 1;
    struct sim_card *card = &rm->cards[index];

    *card = (struct sim_card){
        .profile = profile,
        .index = index,
        .minor = index,
        .pci_slot = (uint8_t)(FIRST_PCI_SLOT + index % slots),
        .heap = {.total_bytes = (uint64_t)profile->memory_mib << 20},
    };
    card->gpu_id = (index / slots) << 8 | card->pci_slot;
    card_name(card, rm->machine);
    return card;
}

static int refuse(const char *entry, size_t length)
{
    fprintf(
        stderr,
        "mgpu-simcard: --cards: \"%.*s\" is not PROFILE or PROFILE:COUNT (1 to %d cards in all); profiles:",
        (int)(length > 64 ? 64 : length), entry, RM_MAX_CARDS);
    for (size_t i = 0; i < card_profile_count; i++)
        fprintf(stderr, " %s", card_profiles[i].key);
    fputc('\n', stderr);
    return -EINVAL;
}

int cards_parse(struct rm *rm, const char *list)
{
    for (const char *entry = list;; entry++) {
        size_t length = strcspn(entry, ",");
        size_t key = strcspn(entry, ":,");
        const struct card_profile *profile = card_profile_by_key(entry, key);
        unsigned long count = 1;

        if (profile && key < length) {
            char *end = NULL;

            count = entry[key + 1] >= '0' && entry[key + 1] <= '9' ? strtoul(entry + key + 1, &end, 10) : 0;
            if (end != entry + length)
                count = 0;
        }
        if (!profile || !count || count > RM_MAX_CARDS - rm->card_count)
            return refuse(entry, length);
        while (count--) {
            card_init(rm, profile);
            rm->card_count++;
        }
        entry += length;
        if (!*entry)
            return 0;
    }
}

int cards_are_known(const struct rm *rm)
{
    uint32_t major, minor;

    for (uint32_t i = 0; i < rm->card_count; i++) {
        const struct card_profile *profile = rm->cards[i].profile;

        if (chip_is_known(profile->chip, rm->major, rm->minor, &major, &minor))
            continue;
        fprintf(stderr,
                "mgpu-simcard: --driver-version: \"%s\" does not know a %s: take %u.%u or a newer one\n",
                rm->version, profile->name, major, minor);
        return -EINVAL;
    }
    return 0;
}

static int engines_start(const struct rm *rm, struct sim_card *card)
{
    struct gpu_costs costs = {
        .switch_us = rm->switch_us,
        .copy_mib_per_ms = rm->copy_mib_per_ms ? rm->copy_mib_per_ms : card->profile->copy_mib_per_ms,
        .launch_us = LAUNCH_US,
        .registers = registers_of(card->profile->chip),
    };
    int error = gpu_create(&card->gpu, &costs);

    return error ? error : gpu_start(card->gpu);
}

int cards_start(struct rm *rm)
{
    int error = 0;

    sysmem_start();
    for (uint32_t i = 0; i < rm->card_count && !error; i++)
        error = engines_start(rm, &rm->cards[i]);
    return error;
}

const struct sim_card *cards_plug(struct rm *rm, const char *key)
{
    const struct card_profile *profile = card_profile_by_key(key, strlen(key));
    uint32_t major, minor;
    struct sim_card *card;

    if (!profile || rm->card_count == RM_MAX_CARDS ||
        !chip_is_known(profile->chip, rm->major, rm->minor, &major, &minor))
        return NULL;
    card = card_init(rm, profile);
    if (engines_start(rm, card))
        return NULL;
    rm->card_count++;
    return card;
}

struct sim_card *card_by_minor(struct rm *rm, uint32_t minor)
{
    return minor < rm->card_count ? &rm->cards[minor] : NULL;
}

struct sim_card *card_by_gpu_id(struct rm *rm, uint32_t gpu_id)
{
    for (uint32_t i = 0; i < rm->card_count; i++)
        if (rm->cards[i].gpu_id == gpu_id)
            return &rm->cards[i];
    return NULL;
}

bool cards_are_peers(const struct sim_card *a, const struct sim_card *b)
{
    return a != b && a->profile->chip == b->profile->chip;
}
