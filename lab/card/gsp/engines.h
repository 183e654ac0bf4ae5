/* Groups and channels: what the driver makes on its GSP becomes the engines' (sim/card/gpu). */
#ifndef MGPU_LAB_ENGINES_H
#define MGPU_LAB_ENGINES_H
#include "objects.h"

/* An object was made, with these parameters. */
void engines_made(struct objects *objects, struct object *object, const uint8_t *params, uint32_t bytes);

/* schedule.c: controls of NVIDIA's that say which channels run. A status of RM's. */
uint32_t schedule_control(struct objects *objects, struct name name, uint32_t number, uint8_t *params,
                          uint32_t bytes);
bool schedule_has(uint32_t number);
#endif
