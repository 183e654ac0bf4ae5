/* Questions about nvidia-uvm's files that no tenant asked. */
#ifndef MGPU_NVIDIA_UVM_H
#define MGPU_NVIDIA_UVM_H
#include "host.h"

/* UVM_INITIALIZE has been made on the file. Takes none of UVM's locks. */
bool nvidia_uvm_is_initialized(const struct nvidia_host *host, int fd);

/* 1: initialised with exactly these flags, and its cards reach no other memory of the process; 0: in another
 * way; -ENODATA: not at all yet; -EBUSY: it cannot be asked now. Takes none of UVM's locks either. */
int nvidia_uvm_initialized_as(const struct nvidia_host *host, int fd, uint64_t flags);

/* How many of its files are open on the machine, including one that is being opened or released. UINT32_MAX:
 * unknown. */
uint32_t nvidia_uvm_open_files(const struct nvidia_host *host);
#endif
