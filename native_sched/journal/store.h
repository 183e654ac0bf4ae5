/* A file of records in the journal's folder, mapped: what a killed worker wrote there the next one reads. Memory of a tmpfs:
 * it outlives every process and ends with the machine, as the containers do. Room is allocated before it is touched, so
 * that a full file system is an error of store_reach() and never a SIGBUS.
 *
 * A worker dies between two instructions, so what it stored is all there up to that one. A record that must be whole
 * or not at all carries a checksum that is stored last (store_check); what changes later is single aligned words. */
#ifndef MGPU_JOURNAL_STORE_H
#define MGPU_JOURNAL_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_HEAD_BYTES = 4096, STORE_NAME_MAX = 40 };
/* Counted up with every change of a layout: another version's files are refused, not guessed at. */
enum { STORE_VERSION = 4 };

enum store_kind {
    STORE_FILES = 1,
    STORE_TENANT,
    STORE_LISTENER,
    STORE_EXTERNAL,
    STORE_REGISTERED,
    STORE_MANAGED
};

struct store {
    int folder, fd; /* -1: anonymous memory, which ends with the process */
    char name[STORE_NAME_MAX];
    uint8_t *at; /* after the head */
    void *map;
    size_t map_bytes, reached_bytes; /* reached: of what is at `at` */
    bool found;                      /* an earlier worker's: what it holds is to be taken over */
};

struct store_layout {
    enum store_kind kind;
    uint32_t record_bytes;
    size_t max_bytes; /* of all records */
};

/* Opens the file of that name in `folder`, or makes it; folder -1: memory that nobody else sees. All of it is 0 when it is
 * made. -EPROTO: a file of another version or layout, or none of ours; -ENOSPC. */
int store_open(struct store *s, int folder, const char *name, const struct store_layout *layout);
void store_close(struct store *s);
/* ... and nobody is to take it over. */
void store_remove(struct store *s);

int store_grow(struct store *s, size_t bytes);
/* Room for that many bytes from the start, which may be touched then. -ENOSPC; -EFBIG beyond max_bytes. */
static inline int store_reach(struct store *s, size_t bytes)
{
    return bytes <= s->reached_bytes ? 0 : store_grow(s, bytes);
}

/* Never 0. Not against an enemy: the folder is root's. */
uint32_t store_check(const void *record, size_t bytes);
#endif
