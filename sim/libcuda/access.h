/* Contexts that were given access to the memory of others, with the library's lock held.
 *   access.c  who reaches whose    peer.c  cuDeviceCanAccessPeer, cuCtxEnablePeerAccess and their like
 *   reach.c   what nvidia-uvm maps for that */
#ifndef MGPU_SIM_CUDA_ACCESS_H
#define MGPU_SIM_CUDA_ACCESS_H
#include "cuda.h"

/* `from` reaches what `to` makes. False: out of memory. */
bool access_add(CUcontext from, CUcontext to);
bool access_exists(const struct CUctx_st *from, const struct CUctx_st *to);
/* Of one that exists. */
void access_remove(const struct CUctx_st *from, const struct CUctx_st *to);
/* Bits of the cards whose contexts reach the memory of this one's. */
uint32_t access_cards(const struct rmc *rm, const struct CUctx_st *to);
/* Whether a context on either reaches one on the other. */
bool access_between(const struct rmc_card *one, const struct rmc_card *other);
void access_end_context(const struct CUctx_st *context);
/* In a forked child. */
void access_forget(void);
#endif
