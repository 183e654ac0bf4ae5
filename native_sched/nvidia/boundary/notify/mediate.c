#include "mediate.h"
#include "native_sched/nvidia/boundary/call/close_wait.h"
#include "native_sched/nvidia/boundary/call/inflight.h"
#include "native_sched/nvidia/boundary/continued/continued.h"
#include "native_sched/nvidia/boundary/managed/managed.h"
#include "native_sched/nvidia/boundary/older/older.h"
#include "native_sched/nvidia/boundary/rm/control.h"
#include "native_sched/nvidia/boundary/rm/handlers.h"
#include "native_sched/nvidia/boundary/uvm/uvm.h"
#include <errno.h>
#include <string.h>

static bool has_control_file(const struct call *c)
{
    struct open_file now;

    return !files_by_id(c->m->files, c->file.id, &now) || now.control;
}

/* The struct names the control node by an fd of the caller; the driver gets the file behind it. */
static struct answer register_fd(struct call *c)
{
    const struct rm_register_fd *r = (const void *)c->outer;
    struct open_file ctl;
    int e = close_wait_identify(c, r->ctl_fd, &ctl);

    if (e < 0)
        return failed(-EINVAL);
    if (!has_control_file(c))
        inflight_intend(c, INTENT_REGISTER, &c->file, 0, (uint32_t)(ctl.id >> 32), (uint32_t)ctl.id);
    if ((e = call_driver_with(c, &ctl, NULL)) == 0)
        files_register(c->m->files, c->file.id, ctl.id);
    return driver_answer(e, NV_OK);
}

/* A call of few words, none of which is a status. */
static struct answer pass_on(struct call *c)
{
    return driver_answer(call_driver(c), NV_OK);
}

/* The driver keeps the first size that any program sets, for the whole machine, and refuses every other with
 * EBUSY from then on; on a card's file it takes none (nvidia_ioctl() in nv.c). A container sets the kernel's
 * own or none. */
static struct answer sys_params(struct call *c)
{
    const struct rm_sys_params *params = (const void *)c->outer;

    if (c->file.kind != NODE_CTL)
        return failed(-EINVAL);
    if (!params->memblock_bytes || !c->m->memory_block_bytes)
        return answered(NV_OK);
    return params->memblock_bytes == c->m->memory_block_bytes ? pass_on(c) : failed(-EBUSY);
}

typedef struct answer (*handler)(struct call *c);

static struct answer continue_in_caller(struct call *c)
{
    (void)c;
    return continued();
}

/* A column of the commands in rm_rows[], in their order. */
#define HANDLER(handler, ...)     handler
#define HANDLER_MEDIATED(handler) handler
#define HANDLER_ANSWERED          NULL
#define HANDLER_REFUSED           NULL
static const handler handlers[] = {
#define HANDLER_PASSED                              NULL
#define ESCAPE(name, number, bytes, status_at, ...) HANDLER(HANDLER_##__VA_ARGS__, ),
#include "native_sched/nvidia/rm/interface.def"
#undef HANDLER_PASSED
#define HANDLER_PASSED                continue_in_caller
#define UVM(name, number, bytes, ...) HANDLER(HANDLER_##__VA_ARGS__, ),
#include "native_sched/nvidia/rm/interface.def"
};

/* An escape of RM's is for its own files, a command of nvidia-uvm for those where it is the caller's to make.
 */
static bool is_for_file(const struct call *c)
{
    if (c->row->of == RM_ESCAPE)
        return c->file.kind != NODE_UVM;
    return c->file.kind == NODE_UVM && c->m->ops->must_continue;
}

/* Its row is for those who hold their cards alone, or have a driver capability, as this tenant does not. */
static bool needs_more(const struct call *c)
{
    const struct rm_row *of = c->params_row ? c->params_row : c->row;

    return ((c->row->whole || of->whole) && !atomic_load_explicit(&c->tenant->whole, memory_order_relaxed)) ||
           (of->capabilities &&
            !(of->capabilities & atomic_load_explicit(&c->tenant->capabilities, memory_order_relaxed)));
}

static struct answer decide(struct call *c)
{
    handler serve = handlers[c->row - rm_rows];
    struct answer a;

    if (c->row->of == RM_ESCAPE && c->row->disposition == RM_REFUSED)
        return failed(-EPERM);
    if (!is_for_file(c))
        return failed(-ENOTTY);
    if (!serve)
        return failed(c->row->disposition == RM_REFUSED ? -EPERM : -ENOTTY);
    if (needs_more(c))
        return c->params_row ? answered(c->params_row->status) : failed(-EPERM);
    a = serve(c);
    return a.kind == CONTINUE && c->row->of == RM_UVM && c->m->ops->as_caller ? continued_as_caller(c) : a;
}

struct answer mediate(struct call *c)
{
    uint32_t status_at = rm_status_at(c->row, c->outer_bytes);
    struct answer a;

    c->asked = false;
    a = decide(c);
    if (a.kind == ANSWER && status_at != RM_NO_STATUS)
        memcpy(c->outer + status_at, &a.rm_status, sizeof(a.rm_status));
    /* A refusal of our own; errnos are counted where they are answered. */
    if (a.kind != ANSWER || a.rm_status == NV_OK || c->asked || c->passed)
        return a;
    if (needs_more(c))
        stats_refused_to_share(&c->tenant->stats);
    else
        stats_refused(&c->tenant->stats, a.rm_status);
    return a;
}
