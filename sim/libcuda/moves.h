/* Bytes that copies move. The card takes the time of a copy; its bytes are moved here, by the thread that
 * next sees that the card has come past it: waiting for a stream or an event, asking whether it is done, a
 * host function. So what a program may look at by the rules of streams is there, and nothing earlier than the
 * card had it. */
#ifndef MGPU_SIM_CUDA_MOVES_H
#define MGPU_SIM_CUDA_MOVES_H
#include "engines.h"
#include "objects.h"

/* One side of a move: rows of `pitch` bytes, planes of `slice` bytes. */
struct side {
    uint8_t *at; /* NULL: it has no contents */
    size_t pitch, slice;
};

struct box {
    size_t width, height, depth; /* bytes, rows, planes */
};

struct move {
    struct move *next, *before;
    CUcontext context; /* held */
    mark_t mark;
    uint64_t number; /* in the order of submitting */
    bool reached;
    struct side to, from;
    struct box box;
    const void *pattern; /* repeated, instead of `from`; in `bytes` */
    uint32_t unit;       /* of the pattern */
    uint8_t bytes[];     /* read when the copy was asked for */
};

/* NULL: out of memory. `kept` bytes are for the caller to fill. */
struct move *move_make(CUcontext context, size_t kept);
/* Its copy has been submitted, and is done at the mark. Of a context that has ended it is dropped. */
void move_add(struct move *move, mark_t mark);
/* It never was. */
void move_drop(struct move *move);

/* All without the library's lock. Moves what the card is done with. */
void moves_settle(void);
/* Waits until all that is under way has been moved: memory is about to go. */
void moves_finish(void);
/* Of a context that ends nothing more is moved; its engines say by then that it does. */
void moves_end_context(const struct CUctx_st *context);
void moves_forget(void);

/* place.c: what a pointer means to a copy. */
struct place {
    uint8_t *at; /* NULL: it has no contents */
    enum { PLACE_PAGEABLE, PLACE_PINNED, PLACE_CARD } kind;
    const struct rmc_card *card; /* PLACE_CARD: whose memory, and bits of the cards that reach it */
    uint32_t reached;
};
/* `bytes` from the pointer on: in one allocation, or the program's own. Without the library's lock. */
CUresult place_of(CUdeviceptr pointer, size_t bytes, struct place *place);

/* copy.c: what cuMemcpy* comes to, its pointers looked up. Returns when it is done where it blocks or has to
 * do with pageable memory, and at once where it stays on the card. */
struct copy {
    struct side to, from;
    struct place to_place, from_place;
    struct box box;
};
CUresult copy_submit(const struct copy *copy, CUstream stream, bool blocking);
#endif
