/* What RM's controls are called. */
#ifndef MGPU_LAB_CONTROL_NAMES_H
#define MGPU_LAB_CONTROL_NAMES_H
#include <stdint.h>

/* "" when its number is in no header. */
const char *control_name(uint32_t number);
#endif
