/* A tenant's ioctl, made by the arbiter on the tenant's own open file. The thread has no CAP_SYS_ADMIN, SYS_NICE or PERFMON:
 * the driver gives its caller's rights, call by call. */
#define _GNU_SOURCE
#include "../base/scoped.h"
#include "../boundary/mediate.h"
#include "nvidia_abi.h"
#include "nvidia_apart.h"
#include "nvidia_private.h"
#include <errno.h>
#include <string.h>

enum { NONE = 0xffff };

/* What in an outer struct means something only in the process that made the call. */
static const struct shape {
    uint16_t nr, bytes;      /* bytes 0: any */
    uint16_t params_at;      /* u64 */
    uint16_t params_size_at; /* u32 */
    uint16_t pointer_at;     /* u64: never passed on */
    uint16_t fd_at;          /* i32 */
} shapes[] = {
    {NV_ESC_RM_ALLOC, sizeof(struct rm_alloc), RM_PARAMS_AT, offsetof(struct rm_alloc, params_size),
     RM_ALLOC_RIGHTS_AT, NONE},
    {NV_ESC_RM_ALLOC, sizeof(struct rm_alloc_short), RM_PARAMS_AT,
     offsetof(struct rm_alloc_short, params_size), NONE, NONE},
    {NV_ESC_RM_CONTROL, sizeof(struct rm_control), RM_PARAMS_AT, offsetof(struct rm_control, params_size),
     NONE, NONE},
    {NV_ESC_RM_FREE, sizeof(struct rm_free), NONE, NONE, NONE, NONE},
    {NV_ESC_RM_DUP_OBJECT, sizeof(struct rm_dup), NONE, NONE, NONE, NONE},
    {NV_ESC_RM_SHARE, sizeof(struct rm_share), NONE, NONE, NONE, NONE},
    {NV_ESC_RM_MAP_MEMORY_DMA, 0, NONE, NONE, NONE, NONE},
    {NV_ESC_CARD_INFO, 0, NONE, NONE, NONE, NONE},
    {NV_ESC_REGISTER_FD, sizeof(struct rm_register_fd), NONE, NONE, NONE,
     offsetof(struct rm_register_fd, ctl_fd)},
    {NV_ESC_CHECK_VERSION_STR, sizeof(struct rm_check_version), NONE, NONE, NONE, NONE},
    {NV_ESC_SYS_PARAMS, sizeof(struct rm_sys_params), NONE, NONE, NONE, NONE},
    {NV_ESC_ATTACH_GPUS_TO_FD, 0, NONE, NONE, NONE, NONE},
    {NV_ESC_WAIT_OPEN_COMPLETE, 8, NONE, NONE, NONE, NONE},
    /* Their descriptor is a name, of which nothing is looked up. */
    {NV_ESC_ALLOC_OS_EVENT, sizeof(struct rm_os_event), NONE, NONE, NONE, NONE},
    {NV_ESC_FREE_OS_EVENT, sizeof(struct rm_os_event), NONE, NONE, NONE, NONE},
};

static const struct shape *shape_of(uint32_t cmd)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (shapes[i].nr == RM_NR(cmd) && (!shapes[i].bytes || shapes[i].bytes == RM_SIZE(cmd)))
            return &shapes[i];
    return NULL;
}

static uint32_t u32_at(const struct driver_call *call, uint32_t offset)
{
    uint32_t value = 0;

    if (offset + sizeof(value) <= call->outer_bytes)
        memcpy(&value, call->outer + offset, sizeof(value));
    return value;
}

static bool class_is_the_callers(uint32_t class_id)
{
    switch (class_id) {
    case NV01_ROOT: /* the client is the calling process's */
    case NV01_ROOT_NON_PRIV:
    case NV01_ROOT_CLIENT:
    case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: /* pins the caller's pages */
    case AMPERE_SMC_PARTITION_REF:         /* a capability's descriptor */
    case AMPERE_SMC_EXEC_PARTITION_REF:
        return true;
    default:
        return false;
    }
}

/* Controls whose parameters begin with a descriptor of the control node, which RM looks up in the thread that calls
 * (nv_get_file_private()). */
static bool control_names_file(uint32_t cmd)
{
    return cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD ||
           cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD ||
           cmd == NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO;
}

/* Others with descriptors in their parameters: further ways to export, attaching to a multicast team, and the export class. */
static bool control_is_the_callers(uint32_t cmd)
{
    if (control_names_file(cmd))
        return false;
    return (cmd & 0xffffff00) == 0x3d00 || cmd >> 16 == 0xfd || cmd >> 16 == 0xe0;
}

bool nvidia_must_continue(const struct driver_call *call)
{
    if (call->file->kind == NODE_UVM) /* bare numbers, about the caller's own address space */
        return !rm_uvm_of_the_file(call->cmd);
    switch (RM_NR(call->cmd)) {
    case NV_ESC_RM_ALLOC:
        return class_is_the_callers(u32_at(call, offsetof(struct rm_alloc, class_id)));
    case NV_ESC_RM_CONTROL:
        return control_is_the_callers(u32_at(call, offsetof(struct rm_control, cmd)));
    case NV_ESC_RM_VID_HEAP_CONTROL:
        return u32_at(call, RM_VID_HEAP_FUNCTION_AT) == RM_HEAP_OS_DESCRIPTOR;
    case NV_ESC_RM_ALLOC_MEMORY: /* a descriptor, or the caller's pages */
    case NV_ESC_RM_MAP_MEMORY:   /* the driver lets only the client's own process map */
    case NV_ESC_RM_UNMAP_MEMORY:
    case NV_ESC_EXPORT_TO_DMABUF_FD: /* answers with a descriptor */
        return true;
    default:
        return false;
    }
}

static void put(uint8_t *outer, uint16_t offset, const void *value, size_t bytes)
{
    if (offset != NONE)
        memcpy(outer + offset, value, bytes);
}

static bool in_params(const struct driver_call *call)
{
    return RM_NR(call->cmd) == NV_ESC_RM_CONTROL &&
           control_names_file(u32_at(call, offsetof(struct rm_control, cmd)));
}

static int swap_first(struct driver_call *call, int value)
{
    int was;

    memcpy(&was, call->params, sizeof(was));
    memcpy(call->params, &value, sizeof(value));
    return was;
}

/* Our pointers and descriptors in place of the caller's. The parameters' size is that of our copy: the driver copies as
 * many bytes from there. */
static int make_ours(uint8_t *outer, const struct shape *s, const struct driver_call *call, int aux)
{
    uint64_t params = call->params_bytes ? (uintptr_t)call->params : 0, none = 0;
    uint32_t said;

    if (s->params_at == NONE && call->params_bytes)
        return -EINVAL;
    if (s->params_size_at != NONE) {
        memcpy(&said, outer + s->params_size_at, sizeof(said));
        if (s->nr == NV_ESC_RM_CONTROL && said != call->params_bytes)
            return -EINVAL;
        put(outer, s->params_size_at, &call->params_bytes, sizeof(call->params_bytes));
    }
    put(outer, s->params_at, &params, sizeof(params));
    put(outer, s->pointer_at, &none, sizeof(none));
    put(outer, s->fd_at, &aux, sizeof(aux));
    return 0;
}

/* The caller's own again: it must not see where our memory lies. */
static void make_theirs(uint8_t *outer, const struct shape *s, const uint8_t *before)
{
    put(outer, s->params_size_at, before + (s->params_size_at == NONE ? 0 : s->params_size_at),
        sizeof(uint32_t));
    put(outer, s->params_at, before + (s->params_at == NONE ? 0 : s->params_at), sizeof(uint64_t));
    put(outer, s->pointer_at, before + (s->pointer_at == NONE ? 0 : s->pointer_at), sizeof(uint64_t));
    put(outer, s->fd_at, before + (s->fd_at == NONE ? 0 : s->fd_at), sizeof(int32_t));
}

static int fetch(struct driver *d, const struct open_file *file)
{
    int fd = nvidia_files_fetch(&d->files, file->id);
    uint64_t one = 1;

    if (fd == -EAGAIN) {
        atomic_store(&d->lost, true);
        if (write(d->wake, &one, sizeof(one)) < 0)
            return -errno;
    }
    return fd;
}

static int execute_uvm(struct driver *d, struct driver_call *call)
{
    int fd, e;

    if (call->params_bytes || call->aux_file ||
        call->outer_bytes != (uint32_t)rm_uvm_params(call->rm, call->cmd))
        return -EINVAL;
    if ((fd = fetch(d, call->file)) < 0)
        return fd;
    e = d->host->ioctl(fd, call->cmd, call->outer);
    close(fd);
    nvidia_files_put(&d->files, call->file->id);
    return e;
}

int nvidia_execute(struct driver *d, struct driver_call *call)
{
    _Alignas(16) uint8_t outer[OUTER_MAX];
    const struct shape *s = shape_of(call->cmd);
    scoped_fd int aux = -1;
    scoped_fd int fd = -1;
    bool named = in_params(call);
    int e, theirs = -1;

    call->reply_fd = -1;
    if (nvidia_must_continue(call))
        return -EINPROGRESS;
    if (call->file->kind == NODE_UVM)
        return execute_uvm(d, call);
    if (!s)
        return -ENOTTY;
    if (call->outer_bytes != RM_SIZE(call->cmd) || call->outer_bytes > sizeof(outer) ||
        (s->fd_at != NONE || named) != (call->aux_file != NULL) ||
        (named && call->params_bytes < sizeof(aux)) || (call->aux_file && call->aux_file->kind == NODE_UVM))
        return -EINVAL;
    if (call->aux_file && (aux = fetch(d, call->aux_file)) < 0)
        return aux;
    if ((fd = fetch(d, call->file)) < 0)
        return fd;
    memcpy(outer, call->outer, call->outer_bytes);
    if ((e = make_ours(outer, s, call, aux)) < 0)
        return e;
    if (named)
        theirs = swap_first(call, aux);
    e = call->apart ? nvidia_ioctl_apart(d->host, fd, call->cmd, outer)
                    : d->host->ioctl(fd, call->cmd, outer);
    if (named)
        swap_first(call, theirs);
    if (e < 0)
        return e;
    make_theirs(outer, s, call->outer);
    memcpy(call->outer, outer, call->outer_bytes);
    return e;
}
