/* Files of the table that cannot be polled. The table's lock is held. */
#ifndef MGPU_NVIDIA_LOOSE_H
#define MGPU_NVIDIA_LOOSE_H
#include "nvidia_files.h"

/* The slot of the file that fd is, whoever's; 0: none. Ten of them cost ten kcmp. */
uint32_t loose_file_find(const struct nvidia_files *f, int fd);
bool loose_file_is(const struct nvidia_file *file, int fd);
uint32_t loose_files_of(const struct nvidia_files *f, const struct tenant *t);
/* True while one of the descriptors the file was seen at is this very file. */
bool loose_file_at_a_place(const struct nvidia_file *file);
#endif
