/* Faults that can be replayed, from the card's engines to the driver. */
#ifndef MGPU_LAB_FAULTS_H
#define MGPU_LAB_FAULTS_H
#include "card.h"

/* params: NV2080_CTRL_INTERNAL_GMMU_REGISTER_FAULT_BUFFER_PARAMS. */
void faults_register(struct card *card, const uint8_t *params, uint32_t bytes);
void faults_unregister(struct card *card);
/* How a channel's instance block is named. */
uint64_t faults_instance(uint64_t address, bool video);
/* As struct gpu_faults has it. False: nobody takes it. */
bool faults_tell(void *card, uint64_t instance, uint64_t address);
/* The driver has moved GET: what is left is told again. */
void faults_taken(struct card *card);
#endif
