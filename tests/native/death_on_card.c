#define _GNU_SOURCE
#include "death_on_card.h"
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

extern uint8_t __start_on_card_kept[], __stop_on_card_kept[];

static int file = -1; /* where the driver's memory goes; -1: no process is to die */
static uint32_t calls;
static bool once_answered;

/* Looks and suspensions are made at any time, and leave nothing. */
static bool lasts(uint32_t cmd, const void *arg)
{
    const struct rm_control *control = arg;

    return RM_SIZE(cmd) == 0 || RM_NR(cmd) != NV_ESC_RM_CONTROL ||
           control->cmd == NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD ||
           control->cmd == NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD;
}

static _Noreturn void die(void)
{
    size_t bytes = (size_t)(__stop_on_card_kept - __start_on_card_kept);

    if (pwrite(file, __start_on_card_kept, bytes, 0) != (ssize_t)bytes)
        abort();
    _exit(0);
}

void death_on_card(uint32_t cmd, const void *arg, bool answered)
{
    if (file < 0 || !lasts(cmd, arg))
        return;
    if (!answered)
        calls--;
    if (!calls && answered == once_answered)
        die();
}

/* In the nth call of the driver from here on: before it is asked, or once it has answered; 0: now. */
void on_card_dies(int into, uint32_t nth, bool answered)
{
    pthread_mutex_lock(&on_card_lock);
    file = into;
    if (!nth)
        die();
    calls = nth;
    once_answered = answered;
    pthread_mutex_unlock(&on_card_lock);
}

/* What the driver knew as the engine died. */
int on_card_outlives(int from)
{
    size_t bytes = (size_t)(__stop_on_card_kept - __start_on_card_kept);

    return pread(from, __start_on_card_kept, bytes, 0) == (ssize_t)bytes ? 0 : -1;
}
