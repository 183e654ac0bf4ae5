#define _GNU_SOURCE
#include "table.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

/* Moves it to the front. The last one falls off; a scan finds it again. */
void nvidia_file_note_place(struct nvidia_file *file, struct fd_place at)
{
    uint32_t i = 0;

    while (i < file->places && !fd_place_same(&file->place[i], &at))
        i++;
    if (i == file->places && i < NVIDIA_FILE_PLACES)
        file->places++;
    else if (i == NVIDIA_FILE_PLACES)
        i--;
    memmove(&file->place[1], &file->place[0], i * sizeof(at));
    file->place[0] = at;
    file->unlocated = false;
    file->missed_scans = 0;
}

bool nvidia_file_has_process(const struct nvidia_file *file)
{
    for (uint32_t i = 0; i < file->places; i++)
        if (kill(file->place[i].tgid, 0) == 0 || errno != ESRCH)
            return true;
    return false;
}

void nvidia_files_retire(struct nvidia_files *f, uint32_t slot)
{
    struct nvidia_file *file = &f->slot[slot];

    assert_held(&f->lock);
    weak_ref_drop(&file->weak);
    file->closed = true;
    file->unlocated = false;
    file->next = 0;
    if (f->closed_tail)
        f->slot[f->closed_tail].next = slot;
    else
        f->closed_head = slot;
    f->closed_tail = slot;
}

bool nvidia_may_have_another(uint32_t mine, uint32_t all)
{
    if (all == NVIDIA_UNPOLLABLE_MAX || mine == NVIDIA_TENANT_UNPOLLABLE_MAX)
        return false;
    return mine < NVIDIA_TENANT_UNPOLLABLE_SURE || all < NVIDIA_UNPOLLABLE_COMMON;
}
