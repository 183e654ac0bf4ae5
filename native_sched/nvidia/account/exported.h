/* Memory that is exported through an open file of the control node: a further name of it, which no client
 * has. RM duplicates what is exported into a client of its own and lets go in the last close of the file,
 * wherever that has got to by then (RmExportObject() in rmobjexportimport.c, rm_cleanup_file_private() in
 * osapi.c of NVIDIA's open-gpu-kernel-modules).
 *
 * Such a file has a root in its tenant's tree, like a client, and the names that it holds hang from there, in
 * the ring of those that stand for their memory. So they end with the file, and the charge stays for as long.
 * All of them are anonymous, of client 0: a program cannot name them. The owner serialises. */
#ifndef MGPU_EXPORTED_H
#define MGPU_EXPORTED_H
#include "objects.h"

/* RM has a table of 0x80000 for the whole machine, and takes as many words for each file as its first export
 * says. */
enum { EXPORTED_MAX = 16384, EXPORTED_PLACES = 512 };

/* The file's root; 0: nothing has been exported through it. */
uint32_t exported_root(const struct objects *o, uint64_t file);
/* Of a card's objects (OBJECT_NO_CARD: of none), at so many places. -ENOSPC. */
int64_t exported_add_root(struct objects *o, uint64_t file, uint32_t card, uint32_t places);

/* The name at that place; 0: none, or no root. */
uint32_t exported_at(const struct objects *o, uint32_t root, uint32_t place);
/* Another name of what the slot stands for, at a place that is free. -ENOSPC. */
int64_t exported_add(struct objects *o, uint32_t root, uint32_t place, uint32_t source);
#endif
