/* Files of the table that cannot be polled. The table's lock is held. */
#ifndef MGPU_NVIDIA_LOOSE_H
#define MGPU_NVIDIA_LOOSE_H
#include "nvidia_files.h"

/* The slot of the tenant's file that fd is, 0: none. Ten of them cost ten kcmp. */
uint32_t loose_file_find(const struct nvidia_files *f, const struct tenant *t, int fd);
uint32_t loose_files_of(const struct nvidia_files *f, const struct tenant *t);
/* True when one of the descriptors the file was seen at is this very file. */
bool loose_file_is(const struct nvidia_file *file, int fd);
/* True while one of the descriptors the file was seen at is a file of the same device, be it another one. */
bool loose_file_lives(const struct nvidia_file *file);
#endif
