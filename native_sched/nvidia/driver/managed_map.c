#include "managed_map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* PROCMAP_QUERY of Linux 6.11 (linux/fs.h), which headers may lack. Unlike a read it needs no process whose
 * map it was. */
struct map_query {
    uint64_t size, flags, address, start, end, vma_flags, page_size, offset, inode;
    uint32_t dev_major, dev_minor, name_bytes, build_id_bytes;
    uint64_t name, build_id;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
enum { MAP_QUERY_SHARED = 0x08, MAP_QUERY_OR_NEXT = 0x10, MAP_QUERY_OF_FILE = 0x20 };

/* A line of /proc/PID/maps as far as we read it: START-END PERMISSIONS OFFSET. */
struct line {
    char text[96];
    size_t bytes;
};

struct range {
    uint64_t start, end, offset;
};

static bool shared_range(const struct line *l, struct range *out)
{
    char *at;

    out->start = strtoull(l->text, &at, 16);
    if (*at != '-')
        return false;
    out->end = strtoull(at + 1, &at, 16);
    if (strlen(at) < sizeof(" rwxs ") || at[4] != 's')
        return false;
    out->offset = strtoull(at + 6, NULL, 16);
    return true;
}

/* A managed range lies at the address that is its offset in the file (uvm_mmap()). One that is unmapped
 * already, or cannot be inspected, counts: nothing else is mapped like this. */
static bool is_managed(const struct managed_files *files, pid_t tid, const struct range *r)
{
    char path[80];

    if (r->start != r->offset)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)tid, (unsigned long long)r->start,
             (unsigned long long)r->end);
    return files->has(files->driver, path);
}

static uint64_t within(const struct range *r, uint64_t from, uint64_t to)
{
    uint64_t start = r->start > from ? r->start : from, end = r->end < to ? r->end : to;

    return end > start ? end - start : 0;
}

/* The process of this memory has exited, and another one has it: every range that is mapped like a managed
 * one counts. */
static int64_t query(int map, uint64_t from, uint64_t to)
{
    struct map_query q = {
        .size = sizeof(q),
        .flags = MAP_QUERY_SHARED | MAP_QUERY_OR_NEXT | MAP_QUERY_OF_FILE,
        .address = from,
    };
    uint64_t sum = 0;

    for (; ioctl(map, MAP_QUERY, &q) == 0; q.address = q.end) {
        const struct range r = {q.start, q.end, q.offset};

        if (q.start >= to)
            return (int64_t)sum;
        sum += r.start == r.offset ? within(&r, from, to) : 0;
    }
    return errno == ENOENT ? (int64_t)sum : -ESRCH;
}

int64_t managed_mapped(const struct managed_files *files, int map, pid_t tid, uint64_t from, uint64_t to)
{
    struct line line = {.bytes = 0};
    struct range r;
    char piece[8192];
    uint64_t sum = 0;
    bool any = false;
    ssize_t n;

    /* A part of it is asked for with each answer, and has nothing mapped like this as a rule. */
    if (from && query(map, from, to) == 0)
        return 0;
    if (lseek(map, 0, SEEK_SET) < 0)
        return -errno;
    while ((n = read(map, piece, sizeof(piece))) > 0) {
        any = true;
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') {
                if (line.bytes < sizeof(line.text) - 1)
                    line.text[line.bytes++] = piece[i];
                continue;
            }
            line.text[line.bytes] = '\0';
            line.bytes = 0;
            if (!shared_range(&line, &r)) {
                if (strtoull(line.text, NULL, 16) >= to)
                    return (int64_t)sum;
                continue;
            }
            if (r.start >= to)
                return (int64_t)sum;
            if (within(&r, from, to) && is_managed(files, tid, &r))
                sum += within(&r, from, to);
        }
    }
    if (n < 0)
        return errno == ESRCH ? query(map, from, to) : -errno;
    return any ? (int64_t)sum : -ENXIO;
}
