/* What memory holds. Class 0x3e, host memory that a program and the card share: a sealed memfd that the card
 * has mapped for as long as anything uses it, whatever the program does with its own descriptor and handle.
 * Class 0x40, the card's own: the same, once a program reaches for its bytes, and nothing of the host's
 * before that; pages that were never written are none.
 *
 * Host memory is named (client, handle) as in RM, in a table of its own, so that the engines find what a
 * command names without the RM lock. Every function may be called from any thread; the table's lock is a
 * leaf. */
#ifndef MGPU_SIM_SYSMEM_H
#define MGPU_SIM_SYSMEM_H
#include <stdbool.h>
#include <stdint.h>

enum {
    SYSMEM_CLIENT_OBJECTS = 1024,
    SYSMEM_OBJECTS = 1 << 14, /* of all clients together: each is a descriptor and a mapping of the card's */
};

#define SYSMEM_CLIENT_BYTES (UINT64_C(16) << 30)

/* What one client's objects cost the host. It outlives the client while memory of its is in use. */
struct sysmem_quota {
    uint32_t holders, objects; /* under the table's lock */
    uint64_t bytes;
};

struct sysmem {
    struct sysmem *hash_next;
    struct sysmem_quota *quota; /* NULL: the card's own memory, which is paid for otherwise */
    uint8_t *at;                /* zeroed at first, then as hostile as who maps it */
    uint64_t bytes;             /* whole pages; cannot change */
    uint32_t client, handle;    /* 0: it has no name */
    uint32_t references;        /* under the table's lock */
    int fd;                     /* -1: not reached for yet */
};

void sysmem_start(void);
/* *quota NULL: the client's first, made here; given back by sysmem_quota_put(). NULL when a bound above or
 * the host does not allow it. One reference is the table's. */
struct sysmem *sysmem_create(struct sysmem_quota **quota, uint32_t client, uint32_t handle, uint64_t bytes);
void sysmem_quota_put(struct sysmem_quota *quota);
/* Memory without a name, of which there is nothing yet; with a reference. */
struct sysmem *sysmem_sparse(uint64_t bytes);
/* ... which are those of a file that is not ours, and that cannot be made shorter. NULL as below. */
struct sysmem *sysmem_of_file(int fd, uint64_t offset, uint64_t bytes);
/* From here on it has bytes: at, fd. False when a bound above or the host does not allow it. */
bool sysmem_reach(struct sysmem *memory);
/* The name has ended; the memory stays while it is referred to. */
void sysmem_forget(struct sysmem *memory);

/* With a reference, to be put; NULL: no such name. */
struct sysmem *sysmem_get(uint32_t client, uint32_t handle);
struct sysmem *sysmem_take(struct sysmem *memory);
void sysmem_put(struct sysmem *memory);

/* It is also a program's, which writes to it at any time: every word is read once, then checked. */
static inline uint32_t sysmem_read32(const struct sysmem *memory, uint64_t at)
{
    return __atomic_load_n((const uint32_t *)(const void *)(memory->at + at), __ATOMIC_ACQUIRE);
}
static inline uint64_t sysmem_read64(const struct sysmem *memory, uint64_t at)
{
    return __atomic_load_n((const uint64_t *)(const void *)(memory->at + at), __ATOMIC_ACQUIRE);
}

/* A descriptor to give away: O_RDONLY cannot be mapped writable. Negative errno. */
int memfd_reopen(int fd, int flags);
/* A memfd of that size that cannot be resized. Negative errno. */
int memfd_sealed(const char *name, uint64_t bytes, unsigned more_seals);
#endif
