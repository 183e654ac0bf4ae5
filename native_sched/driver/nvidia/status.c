#define _GNU_SOURCE
#include "status.h"
#include "base/scoped.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { ENGINE_STATUS0 = 0x200, TSG_MASK = 0xfff, CONTEXT_SHIFT = 13, CONTEXT_MASK = 7, NEXT_SHIFT = 16 };
/* Context status 5 to 7: being saved, loaded, switched. From 6 on the next group is the one that counts
 * (ga100_runl_engine_status() in nouveau, which names these fields too). */
enum { CONTEXT_SWITCHES = 5, CONTEXT_LOADS = 6 };
#define STATUS_BUSY 0x80000000u

bool nvidia_status_decode(uint32_t word, struct engine_status *out)
{
    uint32_t context = word >> CONTEXT_SHIFT & CONTEXT_MASK;

    /* A lost card reads all ones; a locked register reads 0xbad?????. */
    if (word == UINT32_MAX || word >> 20 == 0xbad)
        return false;
    *out = (struct engine_status){
        .tsg_id = (context >= CONTEXT_LOADS ? word >> NEXT_SHIFT : word) & TSG_MASK,
        .busy = word & STATUS_BUSY || context >= CONTEXT_SWITCHES,
    };
    return true;
}

static uint32_t word_at(const struct nvidia_status *s, uint32_t offset)
{
    return *(const volatile uint32_t *)(const volatile void *)(s->bar + offset);
}

static void add_engine(struct nvidia_status *s, const struct nvidia_runlist *runlist)
{
    uint32_t base = runlist->base;
    struct engine_status unused;

    if (base % sizeof(uint32_t) || s->bar_bytes < ENGINE_STATUS0 + sizeof(uint32_t) ||
        base > s->bar_bytes - ENGINE_STATUS0 - sizeof(uint32_t) || s->engines == ENGINES_MAX ||
        !nvidia_status_decode(word_at(s, base + ENGINE_STATUS0), &unused))
        return;
    s->at[s->engines] = base + ENGINE_STATUS0;
    s->on[s->engines++] = runlist->engines;
}

int nvidia_status_open(struct nvidia_status *s, const char *bar_path, const struct nvidia_runlist *runlist,
                       uint32_t runlists)
{
    scoped_fd int fd = open(bar_path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *bar;

    *s = (struct nvidia_status){.bar = NULL};
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    bar = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bar == MAP_FAILED)
        return -errno;
    s->bar = bar;
    s->bar_bytes = (size_t)st.st_size;
    for (uint32_t i = 0; i < runlists; i++)
        add_engine(s, &runlist[i]);
    if (s->engines)
        return (int)s->engines;
    nvidia_status_close(s);
    return -ENODATA;
}

void nvidia_status_close(struct nvidia_status *s)
{
    if (s->bar)
        munmap((void *)(uintptr_t)s->bar, s->bar_bytes);
    *s = (struct nvidia_status){.bar = NULL};
}

int nvidia_status_read(const struct nvidia_status *s, struct engine_status *out)
{
    for (uint32_t i = 0; i < s->engines; i++) {
        if (!nvidia_status_decode(word_at(s, s->at[i]), &out[i]))
            return -EIO;
        out[i].engines = s->on[i];
    }
    return (int)s->engines;
}
