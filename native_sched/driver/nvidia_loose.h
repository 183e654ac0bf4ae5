/* Files of the table that cannot be polled. The table's lock is held.
 *
 * One is on `loose` until it has ended. With a `pin` it is looked for; without one it is in no process that we could find, nor
 * closed: nobody can name it any more, and what is charged for it stays. */
#ifndef MGPU_NVIDIA_LOOSE_H
#define MGPU_NVIDIA_LOOSE_H
#include "nvidia_files.h"

/* The slot of the file that fd is, whoever's; 0: none. Ten of them cost ten kcmp. */
uint32_t loose_file_find(const struct nvidia_files *f, int fd);
bool loose_file_is(const struct nvidia_file *file, int fd);
uint32_t loose_files_of(const struct nvidia_files *f, const struct tenant *t);
/* There is one of nvidia-uvm that nobody sees. */
bool loose_files_unseen(const struct nvidia_files *f);
/* One of the descriptors the file was seen at, which is this very file; NULL: none is. */
const struct fd_place *loose_file_place(const struct nvidia_file *file);
/* False when every process it was seen in has ended. A pid that is somebody else's by now passes for the old one. */
bool nvidia_file_has_process(const struct nvidia_file *file);

/* Where a new slot's file is known by what is behind our descriptor; -1: nowhere. -EEXIST: another slot's is. */
int nvidia_files_insert(struct nvidia_files *f, uint32_t slot, int ours);
void nvidia_file_note_place(struct nvidia_file *file, struct fd_place at);

/* The file has ended. Whatever was found of it in `order` or `loose` is taken out by the caller. */
void nvidia_files_bury(struct nvidia_files *f, uint32_t slot);
#endif
