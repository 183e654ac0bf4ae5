#include "mediate.h"
#include "native_sched/boundary/call/inflight.h"
#include "native_sched/boundary/rm/control.h"
#include "native_sched/boundary/rm/handlers.h"
#include "native_sched/boundary/uvm/uvm.h"
#include "native_sched/boundary/call/close_wait.h"
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

/* In the order of rm_escapes[], whose rows they are a column of. */
#define HANDLER(handler, ...)     handler
#define HANDLER_MEDIATED(handler) handler
#define HANDLER_PASSED            NULL
#define HANDLER_ANSWERED          NULL
#define HANDLER_REFUSED           NULL
static const handler handlers[] = {
#define ESCAPE(name, number, bytes, status_at, ...) HANDLER(HANDLER_##__VA_ARGS__, ),
#include "rm/interface.def"
};

bool call_changes(const struct call *c)
{
    const struct rm_escape_row *escape = call_row(c->cmd);
    const struct rm_uvm_row *uvm = rm_uvm_of_any(c->cmd);
    const struct rm_row *control = NULL;

    if (RM_NR(c->cmd) == NV_ESC_RM_CONTROL)
        control = rm_control_of_any(((const struct rm_control *)(const void *)c->outer)->cmd);
    return (escape && escape->changes) || (uvm && uvm->changes) || (control && control->changes);
}

int mediate_outer_bytes(const struct mediator *m, uint32_t cmd)
{
    return rm_escape(&m->rm, RM_NR(cmd), RM_SIZE(cmd)) ? (int)RM_SIZE(cmd) : uvm_outer_bytes(m, cmd);
}

bool mediate_passes(const struct mediator *m, uint32_t cmd)
{
    const struct rm_escape_row *row = rm_escape(&m->rm, RM_NR(cmd), RM_SIZE(cmd));

    return row ? row->disposition == RM_PASSED : uvm_passes(m, cmd);
}

static struct answer mediate_escape(struct call *c, const struct rm_escape_row *row)
{
    handler serve = handlers[row - rm_escapes];

    if (!serve)
        return failed(row->disposition == RM_REFUSED ? -EPERM : -ENOTTY);
    if (c->file.kind == NODE_UVM)
        return failed(-ENOTTY);
    return serve(c);
}

struct answer mediate(struct call *c)
{
    const struct rm_escape_row *row = rm_escape(&c->m->rm, RM_NR(c->cmd), RM_SIZE(c->cmd));
    uint32_t status_at = call_status_at(c->cmd);
    struct answer a;

    c->asked = false;
    a = row ? mediate_escape(c, row) : mediate_uvm(c);
    if (a.kind == ANSWER && status_at != RM_NO_STATUS)
        memcpy(c->outer + status_at, &a.rm_status, sizeof(a.rm_status));
    /* A refusal of our own; errnos are counted where they are answered. */
    if (a.kind == ANSWER && a.rm_status != NV_OK && !c->asked && !c->passed)
        stats_refused(&c->tenant->stats, a.rm_status);
    return a;
}
