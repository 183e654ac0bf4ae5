#define _GNU_SOURCE
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROW_BYTES = 64 << 10, BOOT_BYTES = 40 };

struct head {
    uint32_t magic, version, kind, record_bytes;
    uint64_t max_bytes;
    char boot[BOOT_BYTES];
    uint32_t check; /* of what is before it; stored last */
};
enum { MAGIC = 0x4a55504d /* MPUJ */ };

uint32_t store_check(const void *record, size_t bytes)
{
    const uint8_t *p = record;
    uint64_t sum = 0xcbf29ce484222325u ^ bytes, word;
    uint32_t folded;

    for (; bytes >= sizeof(word); p += sizeof(word), bytes -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    word = 0;
    memcpy(&word, p, bytes);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    folded = (uint32_t)(sum >> 32) ^ (uint32_t)sum;
    return folded ? folded : 1;
}

static int read_boot(char boot[BOOT_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    int e = fd < 0 || read(fd, boot, BOOT_BYTES) < 0 ? -errno : 0;

    if (fd >= 0)
        close(fd);
    return e;
}

static int head_of(struct head *h, const struct store_layout *layout)
{
    int e;

    memset(h, 0, sizeof(*h));
    *h = (struct head){
        .magic = MAGIC,
        .version = STORE_VERSION,
        .kind = layout->kind,
        .record_bytes = layout->record_bytes,
        .max_bytes = layout->max_bytes,
    };
    if ((e = read_boot(h->boot)) < 0)
        return e;
    h->check = store_check(h, offsetof(struct head, check));
    return 0;
}

static bool of_another_boot(const struct head *have, const struct head *now)
{
    return have->magic == MAGIC && have->version == STORE_VERSION &&
           have->check == store_check(have, offsetof(struct head, check)) &&
           memcmp(have->boot, now->boot, sizeof(now->boot));
}

/* A file without a head was made by an mgpud that died while making it: no record is in it yet. */
static int open_file(struct store *s, const struct store_layout *layout)
{
    struct head want, have = {0};
    struct stat st;
    int e;

    if ((e = head_of(&want, layout)) < 0)
        return e;
    s->fd = openat(s->folder, s->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0 || fstat(s->fd, &st) < 0)
        return -errno;
    if (pread(s->fd, &have, sizeof(have), 0) == sizeof(have) && have.check &&
        !of_another_boot(&have, &want)) {
        if (memcmp(&have, &want, sizeof(have)) || st.st_size < STORE_HEAD_BYTES)
            return -EPROTO;
        s->found = true;
        s->reached_bytes = (size_t)st.st_size - STORE_HEAD_BYTES;
        return s->reached_bytes <= layout->max_bytes ? 0 : -EPROTO;
    }
    if (ftruncate(s->fd, 0) < 0 || fallocate(s->fd, 0, 0, STORE_HEAD_BYTES) < 0)
        return -errno;
    return pwrite(s->fd, &want, sizeof(want), 0) == sizeof(want) ? 0 : -ENOSPC;
}

int store_open(struct store *s, int folder, const char *name, const struct store_layout *layout)
{
    int flags = folder < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, e;

    *s = (struct store){.folder = folder, .fd = -1, .map_bytes = STORE_HEAD_BYTES + layout->max_bytes};
    if ((size_t)snprintf(s->name, sizeof(s->name), "%s", name) >= sizeof(s->name))
        return -ENAMETOOLONG;
    if (folder < 0)
        s->reached_bytes = layout->max_bytes;
    else if ((e = open_file(s, layout)) < 0) {
        if (s->fd >= 0 && e != -EPROTO)
            unlinkat(folder, name, 0);
        store_close(s);
        return e;
    }
    s->map = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE, flags, s->fd, 0);
    if (s->map == MAP_FAILED) {
        e = -errno;
        s->map = NULL;
        store_close(s);
        return e;
    }
    s->at = (uint8_t *)s->map + STORE_HEAD_BYTES;
    return 0;
}

void store_close(struct store *s)
{
    if (s->map)
        munmap(s->map, s->map_bytes);
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct store){.fd = -1};
}

void store_remove(struct store *s)
{
    if (s->fd >= 0)
        unlinkat(s->folder, s->name, 0);
    store_close(s);
}

int store_grow(struct store *s, size_t bytes)
{
    size_t most = s->map_bytes - STORE_HEAD_BYTES, to = (bytes + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;

    if (bytes > most)
        return -EFBIG;
    if (to > most)
        to = most;
    if (fallocate(s->fd, 0, STORE_HEAD_BYTES + (off_t)s->reached_bytes, (off_t)(to - s->reached_bytes)) < 0)
        return errno == ENOSPC || errno == EDQUOT ? -ENOSPC : -errno;
    s->reached_bytes = to;
    return 0;
}
