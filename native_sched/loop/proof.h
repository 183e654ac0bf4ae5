/* Whether a card whose engines cannot be seen has executed nothing for a while: by RM's samples of its
 * utilisation, which no tenant writes. */
#ifndef MGPU_PROOF_H
#define MGPU_PROOF_H
#include "state.h"

/* One is wanted from now on; twice is as once. */
void proof_begin(struct loop *l, uint32_t card, uint64_t now);
/* There is work anew. */
void proof_end(struct loop *l, uint32_t card);
/* Since proof_begin() the card was idle, or nothing will tell. */
bool proof_found(const struct loop *l, uint32_t card);
/* Asks RM for the samples of cards of which a proof is wanted. */
void loop_read_samples(struct loop *l);
#endif
