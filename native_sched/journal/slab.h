/* A table of records in a journal. A record is whole or not at all: it is valid while its check is right,
 * which is stored last and cleared first. Slot 0 is none. Nothing is allocated; the owner serialises. */
#ifndef MGPU_JOURNAL_SLAB_H
#define MGPU_JOURNAL_SLAB_H
#include "store.h"

struct slab_layout {
    uint32_t record_bytes, slots; /* slots: how many there are besides 0 */
    uint32_t check_at, from, to;  /* where a u32 is that checks the bytes from `from` up to `to` */
    uint32_t next_at;             /* where a u32 leads from a free slot to the next one */
};

struct slab {
    const struct slab_layout *layout;
    struct store *store;
    uint8_t *at;
    size_t store_at; /* of `at`, in the store */
    uint32_t free_head, high;
};

/* A slot with undefined content. -ENFILE: all are taken; -ENOSPC: the journal is full. */
int64_t slab_take(struct slab *s);
/* The record in the slot becomes valid; becomes invalid. */
void slab_commit(const struct slab *s, uint32_t slot);
void slab_retract(const struct slab *s, uint32_t slot);
/* The slot is free: all 0. */
void slab_put(struct slab *s, uint32_t slot);

/* After the previous mgpud: slots without a valid record become free. A slot up to `high` is valid if it has
 * a check. */
void slab_recover(struct slab *s);
#endif
