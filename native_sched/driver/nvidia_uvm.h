/* What is asked about nvidia-uvm's files in nobody's name. */
#ifndef MGPU_NVIDIA_UVM_H
#define MGPU_NVIDIA_UVM_H
#include "nvidia_host.h"

/* UVM_INITIALIZE has been made on the file. Takes none of UVM's locks. */
bool nvidia_uvm_is_initialized(const struct nvidia_host *host, int fd);

/* 1: ... with exactly these flags, and its cards reach no other memory of the process; 0: in another way; -ENODATA: not at all
 * yet; -EBUSY: it cannot be asked now. Takes none either. */
int nvidia_uvm_initialized_as(const struct nvidia_host *host, int fd, uint64_t flags);

/* How many of its files are open on the machine, one that is being opened or released included. UINT32_MAX: the kernel does not
 * say. */
uint32_t nvidia_uvm_open_files(const struct nvidia_host *host);
#endif
