/* What the simulated card's engines execute: its registers, mapped read-only. */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "line.h"
#include "private.h"
#include "sim/abi/channel_abi.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* As with the driver's own file, the mapping outlives the object; userd_unmap() ends it. */
int sim_map_readonly(int fd, void **at, size_t *bytes)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *bytes = (size_t)st.st_size;
    *at = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
    return *at == MAP_FAILED ? -errno : 0;
}

static int open_registers(struct driver *d, uint32_t minor)
{
    struct runlist runlist[SIM_RUNLISTS_MAX];
    struct line *l = sim_line();
    struct sim_registers registers;
    scoped_fd int bar = -1;
    size_t bytes;
    uint32_t n;
    void *at;
    int e;

    if (!l)
        return -ENOMEM;
    sim_begin(l, SIM_STATUS);
    l->request.minor = minor;
    if ((e = sim_ask(d, l, 0, &bar)) < 0)
        return e;
    if (l->reply.outer_bytes != sizeof(registers))
        return -EIO;
    memcpy(&registers, l->reply.payload, sizeof(registers));
    for (n = 0; n < registers.runlists && n < SIM_RUNLISTS_MAX; n++)
        runlist[n] = (struct runlist){
            .base = registers.runlist[n].base,
            .count = (uint32_t)__builtin_popcountll(registers.runlist[n].engines),
            .engines = registers.runlist[n].engines,
        };
    d->chip[minor] = chip_find(registers.architecture, registers.implementation);
    if (bar < 0 || sim_map_readonly(bar, &at, &bytes) < 0)
        return -ENODATA;
    return registers_open(&d->registers[minor], at, bytes, d->chip[minor], runlist, n);
}

void sim_add_card(struct driver *d, const struct card *card)
{
    if (card->minor >= MAX_CARDS)
        return;
    sim_release(d, card->minor, false);
    registers_close(&d->registers[card->minor]);
    (void)open_registers(d, card->minor);
}

void sim_release_card(struct driver *d, const struct card *card, bool alone)
{
    (void)alone; /* the driver that it is goes on without being asked */
    if (card->minor >= MAX_CARDS)
        return;
    registers_close(&d->registers[card->minor]);
    sim_release(d, card->minor, true);
}

int sim_engine_status(struct driver *d, const struct card *card, uint64_t engines, struct engine_status *out)
{
    return card->minor < MAX_CARDS ? registers_read(&d->registers[card->minor], engines, out) : 0;
}

const struct chip *sim_chip(const struct driver *d, const struct card *card)
{
    return card->minor < MAX_CARDS ? d->chip[card->minor] : NULL;
}

void sim_unmap_all(struct driver *d)
{
    for (uint32_t i = 0; i < MAX_CARDS; i++)
        registers_close(&d->registers[i]);
}
