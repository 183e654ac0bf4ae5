/* RM's samples of what a card's engines did in the last ten seconds (native_sched/nvidia/rm/perfmon.h). */
#ifndef MGPU_SAMPLES_H
#define MGPU_SAMPLES_H
#include "driver.h"
#include "native_sched/nvidia/rm/perfmon.h"

enum { SAMPLES_BYTES_MAX = 56 << 10 };
struct samples {
    _Alignas(8) uint8_t params[SAMPLES_BYTES_MAX];
    uint32_t bytes;
};

/* The control's parameters in that driver's version. */
void samples_ask(struct samples *s, const struct rm_table *rm);
/* From the driver's answer. -ENODATA: the ring is empty. */
int samples_newest(const struct samples *s, const struct rm_table *rm, struct card_samples *out);
#endif
