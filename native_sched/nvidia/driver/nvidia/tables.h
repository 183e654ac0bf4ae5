/* What NVIDIA's driver takes of a card by itself for an object: page tables, and a channel's own memory. No
 * account of the driver's has it and no ioctl names it. An upper bound, by the driver's source. */
#ifndef MGPU_NVIDIA_TABLES_H
#define MGPU_NVIDIA_TABLES_H
#include <stdint.h>

/* params: those of the class. UINT64_MAX: more than any card has. */
uint64_t nvidia_own_bytes(uint32_t class_id, const void *params);

/* The page tables of so many bytes of virtual memory, as RM reserves them. */
uint64_t nvidia_reserved_tables(uint64_t bytes);
#endif
