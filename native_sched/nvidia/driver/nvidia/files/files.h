/* The open files of the driver that tenants have, none of which is kept open for long: for each a weak
 * reference, which proves identity and close, and a few places where it was last seen, from which it is
 * fetched again.
 *
 * A lookup costs one kcmp (a microsecond at most) where this process used this descriptor for this file
 * before, else one for each halving of the table. Files of all tenants are in one order, the kernel's, so
 * that a file that one tenant passes to another is known as the first one's.
 *
 * nvidia-uvm's files are unpollable and take no weak reference. Each is kept open by a descriptor of ours, by
 * which it is known wherever it comes up (KCMP_FILE), and which is closed when no process has another one. If
 * that was not the last close, the file is unlocated: it stays in the table, with its charges, until its
 * tenant has exited. */
#ifndef MGPU_NVIDIA_FILES_H
#define MGPU_NVIDIA_FILES_H
#include "table.h"

int nvidia_files_init(struct nvidia_files *f, struct files *known);
void nvidia_files_destroy(struct nvidia_files *f);

/* Identifies the file behind our descriptor `ours`, fetched from `at`: a known one, or a new one of tenant t.
 * kind and minor are those of the node behind it. -EPERM: another tenant's. -ENOENT: it is new and may_be_new
 * is false. */
int nvidia_files_identify(struct nvidia_files *f, struct tenant *t, const struct open_file *node, int ours,
                          struct fd_place at, bool may_be_new, struct open_file *out);

/* Adopts a file of the previous mgpud, which is behind our descriptor `ours`, fetched from `at`, and keeps
 * its id. -EEXIST: that is another known file. ours -1: it is unlocated; of a control file, client is one
 * that was made through it. */
int nvidia_files_adopt(struct nvidia_files *f, const struct open_file *file, int ours, struct fd_place at,
                       uint32_t client);

/* Puts a new slot's file where it is found by the descriptor `ours`; -1: it is unlocated. -EEXIST: another
 * slot has the file. */
int nvidia_files_insert(struct nvidia_files *f, uint32_t slot, int ours);

/* Whether the file behind our descriptor is a known one that can be polled. */
bool nvidia_files_know(struct nvidia_files *f, int ours);
/* The known file behind our descriptor. */
bool nvidia_files_named(struct nvidia_files *f, int ours, struct open_file *out);
/* Notes that our descriptor `ours` was fetched from `at`, if it is a known file. */
void nvidia_files_note(struct nvidia_files *f, int ours, struct fd_place at);

/* A descriptor of the file, which the caller closes and then puts back. -EBADF: closed. -EAGAIN: open, but no
 * place has it. -EBUSY: being closed, and whether this is the last close is not known yet. */
int nvidia_files_fetch(struct nvidia_files *f, uint64_t id);
void nvidia_files_put(struct nvidia_files *f, uint64_t id);

/* Keeps the file open by a descriptor of ours, so that it is fetched wherever its others are. Errors as of
 * nvidia_files_fetch(). An unpollable one is kept anyway. */
int nvidia_files_pin(struct nvidia_files *f, uint64_t id);
/* Nothing for one that is not pinned. */
void nvidia_files_unpin(struct nvidia_files *f, uint64_t id);

/* Checks some of the files, in turn. True when one of them is unlocated. */
bool nvidia_files_sweep(struct nvidia_files *f);

/* A closed file, each once: its id; 0: none. */
uint64_t nvidia_files_take_closed(struct nvidia_files *f);
#endif
