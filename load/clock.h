/* Times. A card's events know only the time between two of them; which moment of CLOCK_MONOTONIC that is
 * comes from when the program first saw an event done: never before it, and now and then right after it.
 *
 * The estimate is late by the quickest such sighting, a microsecond or so on an idle machine. */
#ifndef MGPU_LOAD_CLOCK_H
#define MGPU_LOAD_CLOCK_H
#include "cuda.h"

enum { NS_PER_US = 1000, NS_PER_MS = 1000 * 1000, NS_PER_S = 1000 * 1000 * 1000 };

int64_t now_ns(void); /* CLOCK_MONOTONIC */
void sleep_until_ns(int64_t when_ns);

struct card_clock {
    cuda_handle anchor; /* the event that the card's times are counted from */
    int64_t anchor_ns;  /* when that was, as far as is known */
    int64_t seen_ns;    /* when anything was last learnt */
};
/* 0, or the CUresult of what failed. */
int card_clock_start(struct card_clock *clock, cuda_handle stream);
/* The event, complete, was first seen so at that time. It becomes the anchor when that one is old, and the
 * answer is then the event to use in its place. */
int card_clock_saw(struct card_clock *clock, cuda_handle *event, int64_t seen_ns);
/* The moment of a complete event; 0 when the driver cannot say. */
int64_t card_clock_ns(const struct card_clock *clock, cuda_handle event);
#endif
