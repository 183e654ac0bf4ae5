/* A control of ours beside the one that a caller made. */
#include "control.h"

int control_ask(struct call *c, uint32_t cmd, void *params, uint32_t bytes, const struct open_file *file)
{
    const struct rm_control *theirs = (const void *)c->outer;
    struct rm_control ctl = {
        .client = theirs->client, .object = theirs->object, .cmd = cmd, .params_size = bytes};
    struct driver_call d = call_for_driver(c, &c->file);
    int e;

    d.cmd = RM_CMD(NV_ESC_RM_CONTROL, sizeof(ctl));
    d.row = NULL; /* another control perhaps */
    d.outer = (uint8_t *)&ctl;
    d.outer_bytes = sizeof(ctl);
    d.params = params;
    d.params_bytes = bytes;
    d.aux_file = file;
    e = call_execute(c, &d);
    return e < 0 || !ctl.status ? e : rm_refusal(ctl.status);
}
