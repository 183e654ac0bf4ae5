/* The listeners the holder keeps. Fixed capacity; text is the runtime's message, kept as it came. */
#ifndef MGPU_HOLDER_TABLE_H
#define MGPU_HOLDER_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* TEXTS_MAX: of all texts together, 16 KiB for each; a runtime's usual message has 2. */
enum { HELD_MAX = 1024, TEXT_MAX = 65536, TEXTS_MAX = HELD_MAX * 16384 };

struct held {
    uint64_t id; /* 0: free */
    int fd;
    bool handed; /* mgpud has it */
    bool stored; /* the service manager has it too */
    char *text;
    size_t text_bytes;
};

extern struct held held[HELD_MAX];

/* Ids are never used twice, not even by the next holder: those of this one start at `first` unless it is
 * lower than one that was seen. */
void held_number_from(uint64_t first);
uint64_t held_next_id(void);

/* Takes over fd and text, which it shortens to its length; id 0: a new one. NULL when full, and then the
 * caller keeps both. */
struct held *held_add(uint64_t id, int fd, char *text, size_t text_bytes);
/* NULL when there is none. */
struct held *held_find(uint64_t id);
void held_drop(struct held *h);
uint32_t held_count(void);
#endif
