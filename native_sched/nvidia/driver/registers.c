#define _GNU_SOURCE
#include "registers.h"
#include "native_sched/nvidia/rm/channel.h"
#include <errno.h>
#include <sys/mman.h>

enum { GROUP_MASK = 0xfff, IS_GROUP = 1 << 12, CONTEXT_SHIFT = 13, CONTEXT_MASK = 7, NEXT_SHIFT = 16 };
/* Context status: none, one that is there; from 5 on one that is saved, loaded, or both. */
enum { CONTEXT_NONE = 0, CONTEXT_VALID = 1, CONTEXT_MOVES = 5, CONTEXT_SWITCHES = 7 };
#define STATUS_BUSY 0x80000000u

bool registers_decode(const struct chip *chip, uint32_t word, struct engine_status *out)
{
    uint32_t context = word >> CONTEXT_SHIFT & CONTEXT_MASK;
    bool next = context == chip->loads || context == CONTEXT_SWITCHES;
    uint32_t named = next ? word >> NEXT_SHIFT : word;

    /* A lost card reads all ones; a locked register reads 0xbad?????. */
    if (word == UINT32_MAX || word >> 20 == 0xbad || (context > CONTEXT_VALID && context < CONTEXT_MOVES))
        return false;
    *out = (struct engine_status){
        .tsg_id = named & GROUP_MASK,
        .busy = word & STATUS_BUSY || context >= CONTEXT_MOVES,
    };
    /* The number of a channel, which no group of a tenant's has. */
    if (chip->whole_card && context != CONTEXT_NONE && !(named & IS_GROUP))
        out->tsg_id = ANOTHER_S;
    return true;
}

static uint32_t word_at(const struct registers *r, uint32_t at)
{
    return *(const volatile uint32_t *)(const volatile void *)(r->bar + at);
}

/* What cannot be read of these says nothing of the card: they are switched off by themselves. */
static bool is_of_video(uint64_t engines)
{
    return !(engines & ~RM_VIDEO_ENGINES);
}

static int add_word(struct registers *r, uint64_t at, uint64_t engines)
{
    struct engine_status unused;

    if (at % sizeof(uint32_t) || r->bytes < sizeof(uint32_t) || at > r->bytes - sizeof(uint32_t) ||
        r->engines == ENGINES_MAX ||
        (!is_of_video(engines) && !registers_decode(r->chip, word_at(r, (uint32_t)at), &unused)))
        return -ENODATA;
    r->at[r->engines] = (uint32_t)at;
    r->on[r->engines++] = engines;
    return 0;
}

static int add_words(struct registers *r, uint32_t base, uint32_t words, uint64_t engines)
{
    int e = 0;

    for (uint32_t i = 0; e == 0 && i < words; i++)
        e = add_word(r, (uint64_t)base + r->chip->status + i * r->chip->stride, engines);
    return e;
}

/* Of a runlist with one engine the first word is its status. Of one with several it is not said which are
 * theirs: all are read. */
static int add_runlist(struct registers *r, const struct runlist *runlist)
{
    if (runlist->count > r->chip->words)
        return -ENODATA;
    return add_words(r, runlist->base, runlist->count > 1 ? r->chip->words : 1, runlist->engines);
}

static int add_all(struct registers *r, const struct runlist *runlist, uint32_t runlists)
{
    int e = 0;

    if (r->chip->whole_card)
        return add_words(r, 0, r->chip->words, UINT64_MAX);
    for (uint32_t i = 0; e == 0 && i < runlists; i++)
        if ((e = add_runlist(r, &runlist[i])) < 0 && is_of_video(runlist[i].engines))
            e = 0;
    return e;
}

int registers_open(struct registers *r, const void *bar, size_t bytes, const struct chip *chip,
                   const struct runlist *runlist, uint32_t runlists)
{
    *r = (struct registers){.bar = bar, .bytes = bytes, .chip = chip};
    if (chip && add_all(r, runlist, runlists) == 0 && r->engines)
        return (int)r->engines;
    registers_close(r);
    return -ENODATA;
}

void registers_close(struct registers *r)
{
    if (r->bar)
        munmap((void *)(uintptr_t)r->bar, r->bytes);
    *r = (struct registers){.bar = NULL};
}

int registers_read(const struct registers *r, uint64_t engines, struct engine_status *out)
{
    int n = 0;

    for (uint32_t i = 0; i < r->engines; i++) {
        if (!(r->on[i] & engines))
            continue;
        if (registers_decode(r->chip, word_at(r, r->at[i]), &out[n]))
            out[n++].engines = r->on[i];
        else if (!is_of_video(r->on[i]))
            return -EIO;
    }
    return n;
}
