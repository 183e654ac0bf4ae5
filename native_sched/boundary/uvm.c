/* Commands of nvidia-uvm. They are bare numbers, which the filter matches as a whole, so that nothing that a thread changes in
 * memory makes one of them another. All are about the calling process's address space and run in it.
 *
 * What moves memory of the host's into a card's, or keeps it there, is refused: it is charged to nobody. Faults of the card's
 * on managed memory still do that; what they bring in gives way to allocations (docs/boundary.md). */
#include "mediate.h"
#include <errno.h>

bool uvm_command(uint32_t cmd)
{
    static const uint32_t commands[] = {
#define UVM(name, number) number,
#include "../rm/interface.def"
    };

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        if (commands[i] == cmd)
            return true;
    return false;
}

static bool moves_memory(uint32_t cmd)
{
    switch (cmd) {
    case UVM_SET_PREFERRED_LOCATION:
    case UVM_MIGRATE:
    case UVM_MIGRATE_RANGE_GROUP:
    case UVM_POPULATE_PAGEABLE:
    case UVM_ALLOC_DEVICE_P2P:
    case UVM_DISCARD:
        return true;
    default:
        return false;
    }
}

int mediate_uvm(struct call *c)
{
    struct driver_call d = call_for_driver(c, &c->file);

    if (c->file.kind != NODE_UVM || !c->m->ops->must_continue || !c->m->ops->must_continue(&d))
        return -ENOTTY;
    if (moves_memory(c->cmd))
        return -EPERM;
    c->passed = true;
    return -EINPROGRESS;
}
