/* ALLOC_MEMORY of a process's own pages, class 0x71: memory of the host's that the card reaches too. A driver
 * pins the pages; here the file is mapped that they are of, which has to be one that cannot be made shorter:
 * anonymous shared memory. Other pages have an object too, and the card finds nothing where they are
 * mapped. */
#include "memory/process_map.h"
#include "rm.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE_MASK = 4095 };

/* Memory without a path is on a file system of the kernel's own, where no file can take its name. */
static bool is_the_kernels(int fd)
{
    int own = memfd_create("mgpu-own", MFD_CLOEXEC);
    struct stat theirs, ours;
    bool same = own >= 0 && !fstat(fd, &theirs) && !fstat(own, &ours) && theirs.st_dev == ours.st_dev;

    if (own >= 0)
        close(own);
    return same;
}

static struct sysmem *reach(int32_t tgid, uint64_t address, uint64_t bytes, bool *mapped)
{
    struct sysmem *memory = NULL;
    struct place place;
    char path[80];
    int fd;

    *mapped = process_map_find(tgid, address, &place);
    if (!*mapped || !place.anonymous || bytes > place.end - address)
        return NULL;
    snprintf(path, sizeof path, "/proc/%d/map_files/%llx-%llx", (int)tgid, (unsigned long long)place.start,
             (unsigned long long)place.end);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (is_the_kernels(fd))
        memory = sysmem_of_file(fd, place.offset + (address - place.start), bytes);
    close(fd);
    return memory;
}

static uint32_t make(struct rm_call *call, struct rm_alloc_memory *asked)
{
    const struct sim_file *file = file_find(call->rm, call->file->control_id);
    struct rm_client *client = file ? client_find(call->rm, asked->root, file) : NULL;
    struct rm_object *parent, *object;
    uint64_t bytes = asked->limit + 1;
    bool mapped;

    if (!asked->class_id)
        return NV_ERR_INVALID_CLASS;
    if (!client)
        return NV_ERR_INVALID_CLIENT;
    parent = object_find(call->rm, asked->root, asked->parent);
    if (!parent || parent->class_id != NV01_DEVICE_0)
        return NV_ERR_INVALID_OBJECT_PARENT;
    if (asked->class_id != NV01_MEMORY_SYSTEM_OS_DESCRIPTOR && asked->class_id != NV01_MEMORY_SYSTEM)
        return NV_ERR_INVALID_CLASS;
    if (asked->class_id == NV01_MEMORY_SYSTEM)
        bytes = (bytes + PAGE_MASK) & ~(uint64_t)PAGE_MASK;
    if (!bytes || (bytes | asked->memory) & PAGE_MASK)
        return NV_ERR_INVALID_ARGUMENT;
    if (asked->handle && object_find(call->rm, asked->root, asked->handle))
        return NV_ERR_INSERT_DUPLICATE_NAME;
    if (!asked->handle)
        asked->handle = object_new_handle(call->rm, client);
    object = object_create(call->rm, parent, asked->handle, asked->class_id);
    if (!object)
        return NV_ERR_NO_MEMORY;
    if (asked->class_id == NV01_MEMORY_SYSTEM) {
        object->release = system_memory_free;
        object->memory = sysmem_create(&client->sysmem, asked->root, asked->handle, bytes);
        mapped = object->memory;
    } else {
        object->release = memory_free;
        object->memory = reach(call->tgid, asked->memory, bytes, &mapped);
    }
    if (mapped)
        return NV_OK;
    object_free(call->rm, object);
    return NV_ERR_INVALID_ADDRESS;
}

int pages_alloc(struct rm_call *call)
{
    struct rm_alloc_memory *asked = call->outer;

    asked->status = make(call, asked);
    return 0;
}
