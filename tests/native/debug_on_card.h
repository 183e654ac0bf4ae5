/* What a debugger reads and writes: as the driver, by a pointer into the memory of whoever calls. */
#ifndef MGPU_TESTS_DEBUG_ON_CARD_H
#define MGPU_TESTS_DEBUG_ON_CARD_H
#include <stdbool.h>

struct rm_control;

/* False: it is another control. */
bool debug_on_card_serves(struct rm_control *ctl);
#endif
