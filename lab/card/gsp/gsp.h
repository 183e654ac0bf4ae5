/* The GSP as its driver sees it: it takes requests out of one queue and answers in the other. */
#ifndef MGPU_LAB_GSP_H
#define MGPU_LAB_GSP_H
#include <stdint.h>

struct card;
struct gsp;

/* NULL: no room. */
struct gsp *gsp_create(struct card *card);
/* Booter started it, with that address of its arguments. */
void gsp_boot(struct gsp *gsp, uint64_t arguments);
/* The driver rang: what is in the queue is answered. */
void gsp_look(struct gsp *gsp);
/* Power is off: it has heard of nothing. */
void gsp_power_off(struct gsp *gsp);
#endif
