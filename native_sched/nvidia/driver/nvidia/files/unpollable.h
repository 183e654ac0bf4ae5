/* Files of the table that take no weak reference, such as nvidia-uvm's.
 *
 * One is on `unpollable` until it is closed. With a `held_fd` scans look for it; without one it is unlocated,
 * and its charges stay. */
#ifndef MGPU_NVIDIA_UNPOLLABLE_H
#define MGPU_NVIDIA_UNPOLLABLE_H
#include "native_sched/nvidia/driver/nvidia/host/host.h"
#include "table.h"

/* The slot of the file that fd names, of any tenant; 0: none. Ten of them cost ten kcmp. */
uint32_t unpollable_find(const struct nvidia_files *f, int fd);
bool unpollable_is(const struct nvidia_file *file, int fd);
uint32_t unpollable_count(const struct nvidia_files *f, const struct tenant *t);
/* One of the places where it was seen, which still has it; NULL: none has. */
const struct fd_place *unpollable_place(const struct nvidia_file *file);

/* Marks those that none of their places has; true: there are some. */
bool unpollable_mark(struct nvidia_files *f);
/* A scan of all processes is over. usual: it came by itself; one that a call waits for counts for files whose
 * processes have exited alone. */
void unpollable_scanned(struct nvidia_files *f, bool usual);
/* After a scan: one that enough scans have missed; 0: there is none. */
uint64_t unpollable_next_due(struct nvidia_files *f);
/* Our descriptor of it, for the caller to close; -1: it was seen again, and stays. */
int unpollable_take(struct nvidia_files *f, uint64_t id);
/* That descriptor is closed, and with it the file; else the file is unlocated. */
void unpollable_released(struct nvidia_files *f, uint64_t id, bool closed);
/* Retires the unlocated files of nvidia-uvm, where the kernel counts as many open ones as we have
 * descriptors. */
void unpollable_retire_unlocated(struct nvidia_files *f, const struct nvidia_host *host);
/* The tenant has no process left: its unlocated files are closed. */
void unpollable_tenant_exited(struct nvidia_files *f, const struct tenant *t);
#endif
