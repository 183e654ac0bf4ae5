#include "mediate.h"
#include "caught.h"
#include "control.h"
#include "ending.h"
#include "let_through.h"
#include <errno.h>
#include <string.h>

const struct card *mediator_card(const struct mediator *m, uint32_t index)
{
    for (uint32_t i = 0; i < m->cards; i++)
        if (m->card[i].index == index)
            return &m->card[i];
    return NULL;
}

bool mediator_has_instances(const struct mediator *m)
{
    for (uint32_t i = 0; i < m->cards; i++)
        if (m->card[i].gpu_instance != RM_NO_INSTANCE)
            return true;
    return false;
}

int call_params(struct call *c, uint64_t at, uint32_t bytes)
{
    int e;

    if (bytes > PARAMS_MAX)
        return -EINVAL;
    if (!at || !bytes) {
        c->params_bytes = 0;
        return 0;
    }
    if (at != c->guessed_at || bytes > c->guessed_bytes) {
        if ((e = caller_read(c->caller, at, c->params, bytes)) < 0)
            return e;
        caller_learn_params(c->caller, c->outer_at, at, bytes);
    }
    c->params_at = at;
    c->params_bytes = bytes;
    caught_read_params(c);
    return 0;
}

uint32_t call_find_on(const struct call *c, const struct open_file *file, uint32_t client, uint32_t handle)
{
    const struct objects *o = &c->tenant->objects;
    uint32_t slot = objects_find(o, client, handle);

    return slot && o->slot[objects_root(o, slot)].file == file->id ? slot : 0;
}

uint32_t call_find(const struct call *c, uint32_t client, uint32_t handle)
{
    return call_find_on(c, &c->file, client, handle);
}

bool call_control_file(const struct call *c, struct open_file *out)
{
    struct open_file now;

    if (c->file.kind == NODE_CTL) {
        *out = c->file;
        return true;
    }
    return files_by_id(c->m->files, c->file.id, &now) && now.control &&
           files_by_id(c->m->files, now.control, out) && out->tenant == c->tenant;
}

struct driver_call call_for_driver(struct call *c, const struct open_file *file)
{
    return (struct driver_call){
        .file = file,
        .rm = &c->m->rm,
        .cmd = c->cmd,
        .outer = c->outer,
        .outer_bytes = c->outer_bytes,
        .params = c->params,
        .params_bytes = c->params_bytes,
        .params_max = PARAMS_MAX,
        .apart = c->apart,
        .reply_fd = -1,
    };
}

/* What was read may be another process's by now: nothing is done in its name. */
static int execute(struct call *c, struct driver_call *d)
{
    c->asked = true;
    return caller_waits(c->caller) ? c->m->ops->execute(c->m->driver, d) : -EINTR;
}

int call_driver_with(struct call *c, const struct open_file *aux, int *reply_fd)
{
    struct driver_call d = call_for_driver(c, &c->file);
    int e;

    d.aux_file = aux;
    e = execute(c, &d);
    if (reply_fd)
        *reply_fd = d.reply_fd;
    return e;
}

int call_driver_on(struct call *c, const struct open_file *file, uint32_t cmd, void *outer,
                   uint32_t outer_bytes)
{
    struct driver_call d = call_for_driver(c, file);

    d.cmd = cmd;
    d.outer = outer;
    d.outer_bytes = outer_bytes;
    return execute(c, &d);
}

int call_driver(struct call *c)
{
    return call_driver_with(c, NULL, NULL);
}

int mediator_call(const struct mediator *m, const struct open_file *file, const struct open_file *aux,
                  uint32_t cmd, void *outer, uint32_t outer_bytes)
{
    struct driver_call d = {
        .file = file,
        .aux_file = aux,
        .rm = &m->rm,
        .cmd = cmd,
        .outer = outer,
        .outer_bytes = outer_bytes,
        .apart = RM_NR(cmd) == NV_ESC_RM_FREE && mediator_has_instances(m),
        .reply_fd = -1,
    };

    return m->ops->execute(m->driver, &d);
}

static bool registered(const struct call *c)
{
    struct open_file now;

    return !files_by_id(c->m->files, c->file.id, &now) || now.control;
}

/* The struct names the control node by an fd of the caller; the driver gets the file behind it. */
static int register_fd(struct call *c)
{
    const struct rm_register_fd *r = (const void *)c->outer;
    struct open_file ctl;
    int e = ending_identify(c, r->ctl_fd, &ctl);

    if (e < 0)
        return -EINVAL;
    if (!registered(c))
        caught_intend(c, INTENT_REGISTER, &c->file, 0, (uint32_t)(ctl.id >> 32), (uint32_t)ctl.id);
    if ((e = call_driver_with(c, &ctl, NULL)) == 0)
        files_register(c->m->files, c->file.id, ctl.id);
    return e;
}

/* Those that are MEDIATED by rm/interface.def, each by its symbol there. */
static const struct escape {
    uint32_t nr, size;
    bool changes, on_client; /* its outer struct begins with the handle of a root client */
    int (*serve)(struct call *c);
} escapes[] = {
#define ROW(name) .nr = name, .size = RM_SIZE_##name
    {ROW(NV_ESC_RM_CONTROL), .on_client = true, .serve = mediate_control},
    {ROW(NV_ESC_RM_ALLOC), .changes = true, .on_client = true, .serve = mediate_alloc},
    {ROW(NV_ESC_RM_ALLOC_NVOS21), .changes = true, .on_client = true, .serve = mediate_alloc_short},
    {ROW(NV_ESC_RM_FREE), .changes = true, .on_client = true, .serve = mediate_free},
    {ROW(NV_ESC_CARD_INFO), .serve = mediate_card_info},
    {ROW(NV_ESC_REGISTER_FD), .changes = true, .serve = register_fd},
    {ROW(NV_ESC_CHECK_VERSION_STR), .serve = call_driver},
    {ROW(NV_ESC_SYS_PARAMS), .serve = call_driver},
    {ROW(NV_ESC_ATTACH_GPUS_TO_FD), .serve = mediate_attach_gpus},
    {ROW(NV_ESC_WAIT_OPEN_COMPLETE), .serve = call_driver},
    {ROW(NV_ESC_ALLOC_OS_EVENT), .changes = true, .on_client = true, .serve = mediate_os_event},
    {ROW(NV_ESC_FREE_OS_EVENT), .changes = true, .on_client = true, .serve = mediate_os_event},
    {ROW(NV_ESC_RM_ALLOC_OBJECT), .changes = true, .on_client = true, .serve = mediate_alloc_object},
    {ROW(NV_ESC_RM_ALLOC_MEMORY), .changes = true, .serve = mediate_alloc_memory},
    {ROW(NV_ESC_RM_VID_HEAP_CONTROL), .changes = true, .on_client = true, .serve = mediate_heap},
    {ROW(NV_ESC_RM_DUP_OBJECT), .changes = true, .on_client = true, .serve = mediate_dup},
    {ROW(NV_ESC_RM_SHARE), .on_client = true, .serve = mediate_share},
    {ROW(NV_ESC_RM_MAP_MEMORY), .changes = true, .on_client = true, .serve = mediate_map},
    {ROW(NV_ESC_RM_UNMAP_MEMORY), .on_client = true, .serve = mediate_unmap},
    {ROW(NV_ESC_RM_MAP_MEMORY_DMA), .changes = true, .on_client = true, .serve = mediate_map_dma},
};

static const struct escape *escape_of(const struct rm_escape_row *row)
{
    for (size_t i = 0; row && i < sizeof(escapes) / sizeof(*escapes); i++)
        if (escapes[i].nr == row->number && escapes[i].size == row->bytes)
            return &escapes[i];
    return NULL;
}

/* Its size is a constant for all that have a status or change something. */
static const struct rm_escape_row *fixed_row(uint32_t cmd)
{
    static const struct rm_table none;

    return rm_escape(&none, RM_NR(cmd), RM_SIZE(cmd));
}

uint32_t mediate_status_at(uint32_t cmd)
{
    const struct rm_escape_row *row = fixed_row(cmd);

    if (cmd == UVM_REGISTER_GPU_VASPACE)
        return offsetof(struct uvm_register_gpu_vaspace, status);
    return row ? row->status_at : (uint32_t)RM_NO_STATUS;
}

bool call_changes(const struct call *c)
{
    const struct escape *e = escape_of(fixed_row(c->cmd));

    return (e && e->changes) || rm_uvm_is_executed(c->cmd) ||
           (RM_NR(c->cmd) == NV_ESC_RM_CONTROL &&
            control_changes(((const struct rm_control *)(const void *)c->outer)->cmd));
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

/* A no of our own, in the status word; the errnos are counted where they are answered. */
static void count_refusal(struct call *c, uint32_t status_at, int result)
{
    uint32_t status = NV_OK;

    if (result < 0 || c->asked || c->passed || status_at == RM_NO_STATUS)
        return;
    memcpy(&status, c->outer + status_at, sizeof(status));
    if (status != NV_OK)
        stats_refused(&c->tenant->stats, status);
}

/* Pages of the caller's own: the driver pins those of the process that calls. */
static bool pins_pages(struct call *c)
{
    const struct rm_alloc_memory *memory = (const void *)c->outer;
    const struct rm_heap *heap = (const void *)c->outer;
    struct driver_call d = call_for_driver(c, &c->file);

    switch (RM_NR(c->cmd)) {
    case NV_ESC_RM_ALLOC_MEMORY:
        if (memory->class_id != NV01_MEMORY_SYSTEM_OS_DESCRIPTOR)
            return false;
        break;
    case NV_ESC_RM_VID_HEAP_CONTROL:
        if (heap->function != RM_HEAP_OS_DESCRIPTOR)
            return false;
        break;
    default:
        return false;
    }
    return c->m->ops->must_continue && c->m->ops->must_continue(&d);
}

int mediate(struct call *c)
{
    const struct rm_escape_row *row = rm_escape(&c->m->rm, RM_NR(c->cmd), RM_SIZE(c->cmd));
    const struct escape *e = escape_of(row);
    uint32_t client;
    int error;

    if (!row)
        return mediate_uvm(c);
    if (!e)
        return row->disposition == RM_REFUSED ? -EPERM : -ENOTTY;
    if (c->file.kind == NODE_UVM)
        return -ENOTTY;
    if (e->on_client && __atomic_load_n(&c->tenant->let_through->clients, __ATOMIC_RELAXED)) {
        memcpy(&client, c->outer, sizeof(client));
        if ((error = adopt_client(c, client)) < 0)
            return error;
    }
    c->asked = false;
    if (pins_pages(c))
        return let_pages_through(c);
    error = e->serve(c);
    count_refusal(c, row->status_at, error);
    return error;
}
