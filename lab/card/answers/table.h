/* What the GSP answers, as one table: each row says whether real hardware says so (and who tells), or whether
 * it is made up. A result that rests on what is made up is no truth about the driver's firmware. */
#ifndef MGPU_LAB_ANSWERS_H
#define MGPU_LAB_ANSWERS_H
#include "../state/card.h"
#include <string.h>

struct asked {
    struct card *card;
    uint8_t *params;
    uint32_t bytes;
};

/* NV_OK or a status of RM's. */
typedef uint32_t (*answer_call)(struct asked *asked);

struct answer {
    uint32_t number; /* of a control */
    answer_call call;
    bool made_up;
    const char *source;
    const char *name; /* of a request that is no control */
};

/* Never NULL: an answer that is not in the table says NV_OK, and of a control that gets something, zeros. */
const struct answer *answer_of(uint32_t control);
/* Of controls that say which channels run: the engines do it. */
extern const struct answer answer_scheduled;
/* The same of requests that are no controls. */
const struct answer *answer_of_rpc(const struct layout *layout, uint32_t function);

/* What lies outside the parameters is not written. */
static inline void answer_put(struct asked *asked, uint64_t at, uint64_t value, uint32_t bytes)
{
    if (at <= asked->bytes && asked->bytes - at >= bytes)
        memcpy(asked->params + at, &value, bytes);
}

static inline uint32_t answer_word(const struct asked *asked, uint32_t at)
{
    uint32_t value = 0;

    if (at <= asked->bytes && asked->bytes - at >= sizeof value)
        memcpy(&value, asked->params + at, sizeof value);
    return value;
}

static inline void answer_zero(struct asked *asked)
{
    memset(asked->params, 0, asked->bytes);
}

/* engines.c */
uint32_t answer_devices(struct asked *asked);
uint32_t answer_fifo_devices(struct asked *asked);
uint32_t answer_interrupts(struct asked *asked);
uint32_t answer_channels(struct asked *asked);
uint32_t answer_ce_caps(struct asked *asked);
uint32_t answer_ce_mask(struct asked *asked);
uint32_t answer_hub_mask(struct asked *asked);
uint32_t answer_method_buffer(struct asked *asked);
uint64_t engine_caps(const struct layout *layout);

/* graphics.c */
uint32_t answer_gr_info(struct asked *asked);
uint32_t answer_gr_masks(struct asked *asked);
uint32_t answer_gr_buffers(struct asked *asked);

/* static_info.c */
uint32_t answer_static_info(struct asked *asked);
uint32_t answer_memory_system(struct asked *asked);
uint32_t answer_gmmu(struct asked *asked);
uint32_t answer_bif(struct asked *asked);
uint32_t answer_trust(struct asked *asked);
uint32_t answer_gid(struct asked *asked);
uint32_t answer_bars(struct asked *asked);
uint32_t answer_chip(struct asked *asked);
#endif
