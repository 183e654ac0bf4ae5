/* Registers that tell what a card's engines do. Everything else of BAR0 reads as 0, also what lies elsewhere
 * on another chip: on GB202 an interrupt's retrigger is where GA100 has the first engine's status. */
#ifndef MGPU_SIM_GPU_REGISTERS_H
#define MGPU_SIM_GPU_REGISTERS_H
#include <stdbool.h>
#include <stdint.h>

/* Of runlists, at the multiples of 1 KiB that their bases are. */
enum { RUNLISTS_AT = 0x80000, RUNLIST_BYTES = 0x400 };
/* The number of the first video engine: behind 20 copy engines. */
enum { REGISTERS_VIDEO = 21 };

struct registers {
    bool whole_card; /* one list of engines, before Ampere; else each runlist has its own */
    uint32_t status, stride, words;
    uint32_t loads, saves; /* the context status meanwhile */
    bool has_get;          /* the host writes GP_GET back to USERD */
};

/* Engines are numbered here from 0: graphics, then the copy engines, then video. RM's number of an engine by
 * its number here, and the other way round. */
uint32_t registers_engine_type(uint32_t number);
uint32_t registers_number(uint32_t engine_type);
uint32_t registers_runlist(const struct registers *registers, uint32_t number);
/* Where the status of that engine is, as RM numbers engines; 0: there is no such word. */
uint32_t registers_status(const struct registers *registers, uint32_t engine_type);
#endif
