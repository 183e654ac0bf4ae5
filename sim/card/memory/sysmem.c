#include "sysmem.h"
#include "../../../base/mutex.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS = 4096 };

static pthread_mutex_t lock;
static struct sysmem *table[BUCKETS];
static uint32_t count;

/* Inherits priority: an engine's thread waits here behind ordinary ones. */
void sysmem_start(void)
{
    mutex_init_inheriting(&lock);
}

static struct sysmem **bucket(uint32_t client, uint32_t handle)
{
    uint64_t hash = ((uint64_t)client << 32 | handle) * 0x9e3779b97f4a7c15u;

    return &table[hash >> 52];
}
_Static_assert(BUCKETS == 1 << (64 - 52), "bucket() yields as many bits as there are buckets");

int memfd_sealed(const char *name, uint64_t bytes, unsigned more_seals)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), error;

    if (fd < 0)
        return -errno;
    /* Or a program that has it read-only could reopen it through /proc for writing. */
    if (!fchmod(fd, 0600) && !ftruncate(fd, (off_t)bytes) &&
        !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | more_seals))
        return fd;
    error = -errno;
    close(fd);
    return error;
}

int memfd_reopen(int fd, int flags)
{
    char path[32];
    int opened;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    opened = open(path, flags | O_CLOEXEC);
    return opened < 0 ? -errno : opened;
}

static void destroy(struct sysmem *memory)
{
    if (memory->at != MAP_FAILED)
        munmap(memory->at, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    free(memory);
}

static bool make_bytes(struct sysmem *memory)
{
    void *at;
    int fd = memfd_sealed("mgpu-memory", memory->bytes, F_SEAL_SEAL);

    if (fd < 0)
        return false;
    at = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) {
        close(fd);
        return false;
    }
    memory->fd = fd;
    memory->at = at;
    return true;
}

static bool charge(struct sysmem_quota *quota, uint64_t bytes)
{
    if (count == SYSMEM_OBJECTS || quota->objects == SYSMEM_CLIENT_OBJECTS ||
        quota->bytes + bytes > SYSMEM_CLIENT_BYTES)
        return false;
    count++;
    quota->holders++;
    quota->objects++;
    quota->bytes += bytes;
    return true;
}

/* The quota, when no memory counts against it and it is to be freed. */
static struct sysmem_quota *discharge(struct sysmem_quota *quota, uint64_t bytes)
{
    count--;
    quota->objects--;
    quota->bytes -= bytes;
    return --quota->holders ? NULL : quota;
}

void sysmem_quota_put(struct sysmem_quota *quota)
{
    bool last;

    if (!quota)
        return;
    pthread_mutex_lock(&lock);
    last = !--quota->holders;
    pthread_mutex_unlock(&lock);
    if (last)
        free(quota);
}

static struct sysmem *new_memory(uint32_t client, uint32_t handle, uint64_t bytes)
{
    struct sysmem *memory = malloc(sizeof *memory);

    if (memory)
        *memory = (struct sysmem){
            .bytes = bytes,
            .client = client,
            .handle = handle,
            .references = 1,
            .at = MAP_FAILED,
            .fd = -1,
        };
    return memory;
}

struct sysmem *sysmem_sparse(uint64_t bytes)
{
    return new_memory(0, 0, bytes);
}

struct sysmem *sysmem_of_file(int fd, uint64_t offset, uint64_t bytes)
{
    struct sysmem *memory = new_memory(0, 0, bytes);
    bool there = false;

    if (!memory)
        return NULL;
    pthread_mutex_lock(&lock);
    if (count < SYSMEM_OBJECTS && (memory->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0) {
        memory->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, (off_t)offset);
        there = memory->at != MAP_FAILED;
        count += there;
    }
    pthread_mutex_unlock(&lock);
    if (there)
        return memory;
    destroy(memory);
    return NULL;
}

bool sysmem_reach(struct sysmem *memory)
{
    bool there;

    LOCKED(&lock);
    there = memory->fd >= 0;
    if (!there && count < SYSMEM_OBJECTS && make_bytes(memory)) {
        count++;
        there = true;
    }
    return there;
}

struct sysmem *sysmem_create(struct sysmem_quota **quota, uint32_t client, uint32_t handle, uint64_t bytes)
{
    struct sysmem *memory = new_memory(client, handle, bytes);
    bool charged;

    if (memory && !make_bytes(memory)) {
        free(memory);
        return NULL;
    }
    if (!*quota) {
        *quota = calloc(1, sizeof **quota);
        if (*quota)
            (*quota)->holders = 1;
    }
    if (memory && *quota) {
        pthread_mutex_lock(&lock);
        charged = charge(*quota, bytes);
        if (charged) {
            memory->quota = *quota;
            memory->hash_next = *bucket(client, handle);
            *bucket(client, handle) = memory;
        }
        pthread_mutex_unlock(&lock);
        if (charged)
            return memory;
    }
    if (memory)
        destroy(memory);
    return NULL;
}

static void drop(struct sysmem *memory)
{
    struct sysmem_quota *unheld = NULL;
    bool last;

    pthread_mutex_lock(&lock);
    last = !--memory->references;
    if (last && memory->quota)
        unheld = discharge(memory->quota, memory->bytes);
    else if (last && memory->fd >= 0)
        count--;
    pthread_mutex_unlock(&lock);
    if (last)
        destroy(memory);
    free(unheld);
}

void sysmem_forget(struct sysmem *memory)
{
    struct sysmem **at;

    pthread_mutex_lock(&lock);
    at = bucket(memory->client, memory->handle);
    while (*at != memory)
        at = &(*at)->hash_next;
    *at = memory->hash_next;
    pthread_mutex_unlock(&lock);
    drop(memory);
}

struct sysmem *sysmem_get(uint32_t client, uint32_t handle)
{
    struct sysmem *memory;

    LOCKED(&lock);
    memory = *bucket(client, handle);
    while (memory && (memory->handle != handle || memory->client != client))
        memory = memory->hash_next;
    if (memory)
        memory->references++;
    return memory;
}

struct sysmem *sysmem_take(struct sysmem *memory)
{
    LOCKED(&lock);
    memory->references++;
    return memory;
}

void sysmem_put(struct sysmem *memory)
{
    if (memory)
        drop(memory);
}
