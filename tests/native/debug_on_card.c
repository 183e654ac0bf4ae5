#include "debug_on_card.h"
#include "native_sched/nvidia/rm/rm_abi.h"
#include <string.h>

static uint8_t memory[1 << 18];

bool debug_on_card_serves(struct rm_control *ctl)
{
    const struct rm_debug_memory *p = (const void *)(uintptr_t)ctl->params;
    bool writes = ctl->cmd == NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY;
    void *there;

    if (!writes && ctl->cmd != NV83DE_CTRL_CMD_DEBUG_READ_MEMORY)
        return false;
    there = (void *)(uintptr_t)p->buffer;
    ctl->status = NV_ERR_INVALID_ARGUMENT;
    if (p->offset > sizeof(memory) || p->length > sizeof(memory) - p->offset)
        return true;
    if (writes)
        memcpy(memory + p->offset, there, p->length);
    else
        memcpy(there, memory + p->offset, p->length);
    ctl->status = NV_OK;
    return true;
}
