/* What a listener has in the journal. */
#ifndef MGPU_LISTENER_PAGE_H
#define MGPU_LISTENER_PAGE_H
#include "inflight.h"
#include "parked.h"
#include "replay.h"

struct listener_page {
    uint64_t tenant;
    struct inflight inflight;
    struct replay replay;
    struct parked_calls parked;
};
extern const struct store_layout listener_layout;
#endif
