/* Processes that are bytes of the fuzzer's: what process/caller.c has from the kernel. */
#include "world.h"
#include <errno.h>

bool caller_waits(const struct caller *c)
{
    (void)c;
    return !one_in(world.choices, 32);
}

pid_t caller_tgid(struct caller *c)
{
    return (pid_t)c->req->pid / 4;
}

int caller_process_id(struct caller *c, struct process_id *out)
{
    if (one_in(world.choices, 32))
        return -ESRCH;
    *out = (struct process_id){.tgid = caller_tgid(c), .levels = 2};
    out->at[0] = out->tgid;
    out->at[1] = out->tgid - 40;
    return 0;
}

int caller_process_id_of(pid_t tid, struct process_id *out)
{
    *out = (struct process_id){.tgid = tid, .levels = 1, .at = {tid}};
    return 0;
}

int caller_fetch_fd(struct caller *c, int fd)
{
    (void)c;
    (void)fd;
    return -EBADF;
}

bool caller_recall_file(struct caller *c, int fd, struct file_identity *out)
{
    (void)c;
    (void)fd;
    (void)out;
    return false;
}

void caller_remember_file(struct caller *c, int fd, int ours, const struct file_identity *identity)
{
    (void)c;
    (void)fd;
    (void)ours;
    (void)identity;
}

int caller_replace_fd(struct caller *c, int fd, int ours)
{
    (void)c;
    (void)fd;
    (void)ours;
    return 0;
}

int caller_read(struct caller *c, uint64_t at, void *to, size_t bytes)
{
    (void)c;
    (void)at;
    if (one_in(world.choices, 32))
        return -EFAULT;
    some_params(world.choices, world.made, to, bytes);
    return 0;
}

int caller_read_ends(struct caller *c, uint64_t at, uint8_t *to, size_t first, size_t bytes, size_t last)
{
    int e = caller_read(c, at, to, first);

    return e < 0 ? e : caller_read(c, at, to + bytes - last, last);
}

int caller_write_both(struct caller *c, uint64_t at, const void *outer, size_t bytes, uint64_t params_at,
                      const void *params, size_t params_bytes)
{
    (void)c;
    (void)at;
    (void)outer;
    (void)bytes;
    (void)params;
    if (RM_NR(world.made->cmd) == NV_ESC_RM_CONTROL) {
        const struct rm_control *ctl = (const void *)world.made->outer;

        if (ctl->cmd == NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2 &&
            (params_at - ctl->params > ctl->params_size ||
             params_bytes > ctl->params_size - (params_at - ctl->params)))
            broken("%zu bytes are written beside the parameters", params_bytes);
    }
    return one_in(world.choices, 32) ? -EFAULT : 0;
}

void caller_learn_params(struct caller *c, uint64_t outer_at, uint64_t params_at, uint32_t bytes)
{
    (void)c;
    (void)outer_at;
    (void)params_at;
    (void)bytes;
}
