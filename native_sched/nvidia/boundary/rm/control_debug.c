/* What a debugger reads and writes: the driver looks the memory up in the client that the debugger's object
 * was made for, which is one of the tenant's. */
#include "control.h"

enum { DEBUG_BYTES_MAX = 64 << 20, PIECE_BYTES = PARAMS_MAX - sizeof(struct rm_debug_memory) };

int control_debug_memory(struct call *c, uint32_t *status)
{
    bool writes = c->params_row->number == NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY;
    struct rm_debug_memory *p = (void *)c->params, asked = *p;
    uint8_t *ours = c->params + sizeof(*p);
    uint32_t done = 0, bytes;
    int e = 0;

    if (asked.length > DEBUG_BYTES_MAX) {
        *status = NV_ERR_INVALID_ARGUMENT;
        return 0;
    }
    do {
        bytes = asked.length - done < PIECE_BYTES ? asked.length - done : PIECE_BYTES;
        if (writes && (e = caller_read(c->caller, asked.buffer + done, ours, bytes)) < 0)
            break;
        *p = (struct rm_debug_memory){asked.memory, bytes, asked.offset + done, (uintptr_t)ours};
        if ((e = call_driver(c)) < 0 || *status)
            break;
        if (!writes && (e = caller_write_both(c->caller, asked.buffer + done, ours, bytes, 0, NULL, 0)) < 0)
            break;
        done += bytes;
    } while (done < asked.length);
    /* The caller must not see where our memory lies. */
    *p = asked;
    p->length = done;
    return e;
}
