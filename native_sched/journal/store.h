/* A file of records in the journal's folder, mapped: the next mgpud reads what a killed one wrote. It
 * outlives every process, and is believed in the boot that it was made in, since containers end with the
 * machine. Room is allocated before it is touched, so that a full file system is an error of store_reach()
 * and never a SIGBUS.
 *
 * mgpud dies between two instructions, so all that it stored before is there. A record that must be whole or
 * not at all carries a checksum that is stored last (store_check); later changes are single aligned words. */
#ifndef MGPU_JOURNAL_STORE_H
#define MGPU_JOURNAL_STORE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_HEAD_BYTES = 4096, STORE_NAME_MAX = 40 };
/* Raised with every change of a layout: files of another version are refused. */
enum { STORE_VERSION = 10 };

enum store_kind { STORE_FILES = 1, STORE_TENANT, STORE_LISTENER, STORE_EXTERNAL, STORE_MANAGED };

struct store {
    int folder, fd; /* -1: anonymous memory, which ends with the process */
    char name[STORE_NAME_MAX];
    uint8_t *at; /* after the head */
    void *map;
    size_t map_bytes, reached_bytes; /* reached: of what is at `at` */
    bool found;                      /* the previous mgpud's: its records are to be recovered */
};

struct store_layout {
    enum store_kind kind;
    uint32_t record_bytes;
    size_t max_bytes; /* of all records */
};

/* Opens the file of that name in `folder`, or makes it; folder -1: private memory. A new one is all 0, and so
 * is one of another boot.
 * -EPROTO: a file of another version or layout, or another program's; -ENOSPC. */
int store_open(struct store *s, int folder, const char *name, const struct store_layout *layout);
void store_close(struct store *s);
/* Closes the store and removes its file: the next mgpud does not recover it. */
void store_remove(struct store *s);

int store_grow(struct store *s, size_t bytes);
/* Room for that many bytes from the start, which may be touched then. -ENOSPC; -EFBIG beyond max_bytes. */
static inline int store_reach(struct store *s, size_t bytes)
{
    return bytes <= s->reached_bytes ? 0 : store_grow(s, bytes);
}

/* Never 0. No protection against tampering: the folder is root's. */
uint32_t store_check(const void *record, size_t bytes);
#endif
