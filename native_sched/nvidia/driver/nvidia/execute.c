/* A tenant's ioctl, made by the arbiter on the tenant's own open file. The thread lacks CAP_SYS_ADMIN,
 * SYS_NICE and PERFMON, since the driver grants the calling thread's rights. */
#define _GNU_SOURCE
#include "base/scoped.h"
#include "native_sched/nvidia/driver/nvidia/host/unshared.h"
#include "native_sched/nvidia/rm/arbiter_abi.h"
#include "native_sched/nvidia/rm/table.h"
#include "private.h"
#include <errno.h>
#include <string.h>

_Static_assert(offsetof(struct rm_register_fd, ctl_fd) == 0, "where NAMES_FILE has it");

static void find_rows(struct driver_call *call)
{
    call->row = rm_command_row(call->rm, call->cmd);
    call->params_row = call->outer_bytes == RM_SIZE(call->cmd)
                           ? rm_params_row(call->rm, call->row, call->outer)
                           : NULL;
}

/* Calls without a row, or of a refused class, are not for tenants, and the arbiter makes none of them:
 * further ways to export, attaching to a multicast team, and the export class among controls, and the
 * caller's own pages among classes. */
static bool is_continued(const struct rm_row *row)
{
    return !row || row->continued || row->kind == RM_KIND_REFUSED;
}

bool nvidia_must_continue(const struct driver_call *call)
{
    const struct rm_row *row = call->row;

    if (call->file->kind == NODE_UVM) /* bare numbers, about the caller's own address space */
        return !row || row->of != RM_UVM || !row->executed;
    if (RM_NR(call->cmd) == NV_ESC_RM_ALLOC || RM_NR(call->cmd) == NV_ESC_RM_CONTROL)
        return is_continued(call->params_row);
    return row && row->continued;
}

static void put(uint8_t *outer, uint32_t offset, const void *value, size_t bytes)
{
    if (offset)
        memcpy(outer + offset, value, bytes);
}

static bool in_params(const struct driver_call *call)
{
    return call->params_row && call->params_row->names_file;
}

static int swap_first(struct driver_call *call, int value)
{
    int was;

    memcpy(&was, call->params, sizeof(was));
    memcpy(call->params, &value, sizeof(value));
    return was;
}

/* Our pointers and descriptors in place of the caller's. The parameters' size is that of our copy: the driver
 * copies as many bytes from there. */
static int make_ours(uint8_t *outer, const struct rm_row *row, const struct driver_call *call, int aux)
{
    uint64_t params = call->params_bytes ? (uintptr_t)call->params : 0, none = 0;
    uint32_t requested;

    if (!row->params_at && call->params_bytes)
        return -EINVAL;
    if (row->params_at) {
        memcpy(&requested, outer + row->params_size_at, sizeof(requested));
        if (row->number == NV_ESC_RM_CONTROL && requested != call->params_bytes)
            return -EINVAL;
    }
    put(outer, row->params_size_at, &call->params_bytes, sizeof(call->params_bytes));
    put(outer, row->params_at, &params, sizeof(params));
    put(outer, row->pointer_at, &none, sizeof(none));
    if (row->names_file)
        memcpy(outer, &aux, sizeof(aux));
    return 0;
}

/* Puts the caller's own values back: it must not learn our addresses. */
static void make_theirs(uint8_t *outer, const struct rm_row *row, const uint8_t *before)
{
    put(outer, row->params_size_at, before + row->params_size_at, sizeof(uint32_t));
    put(outer, row->params_at, before + row->params_at, sizeof(uint64_t));
    put(outer, row->pointer_at, before + row->pointer_at, sizeof(uint64_t));
    if (row->names_file)
        memcpy(outer, before, sizeof(int32_t));
}

static int fetch(struct driver *d, const struct open_file *file)
{
    int fd = nvidia_files_fetch(&d->files, file->id);
    uint64_t one = 1;

    if (fd == -EAGAIN) {
        atomic_store(&d->unlocated, true);
        if (write(d->wake, &one, sizeof(one)) < 0)
            return -errno;
    }
    return fd;
}

static int execute_uvm(struct driver *d, struct driver_call *call)
{
    int fd, e;

    if (call->params_bytes || call->aux_file || call->outer_bytes != rm_bytes(call->rm, call->row->bytes))
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
    const struct rm_row *row;
    scoped_fd int aux = -1;
    scoped_fd int fd = -1;
    bool named;
    int e, theirs = -1;

    call->reply_fd = -1;
    if (!call->row)
        find_rows(call);
    row = call->row;
    named = in_params(call);
    if (nvidia_must_continue(call))
        return -EINPROGRESS;
    if (call->file->kind == NODE_UVM)
        return execute_uvm(d, call);
    if (!row || !row->executed)
        return -ENOTTY;
    if (call->outer_bytes != RM_SIZE(call->cmd) || call->outer_bytes > sizeof(outer) ||
        (row->names_file || named) != (call->aux_file != NULL) ||
        (named && call->params_bytes < sizeof(aux)) || (call->aux_file && call->aux_file->kind == NODE_UVM))
        return -EINVAL;
    if (call->aux_file && (aux = fetch(d, call->aux_file)) < 0)
        return aux;
    if ((fd = fetch(d, call->file)) < 0)
        return fd;
    memcpy(outer, call->outer, call->outer_bytes);
    if ((e = make_ours(outer, row, call, aux)) < 0)
        return e;
    if (named)
        theirs = swap_first(call, aux);
    e = call->unshared ? nvidia_unshared_ioctl(d->host, fd, call->cmd, outer)
                       : d->host->ioctl(fd, call->cmd, outer);
    if (named)
        swap_first(call, theirs);
    if (e < 0)
        return e;
    make_theirs(outer, row, call->outer);
    memcpy(call->outer, outer, call->outer_bytes);
    return e;
}
