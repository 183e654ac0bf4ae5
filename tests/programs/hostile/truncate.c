/* Takes the memory of a channel's USERD away while other processes have it mapped. Prints the errnos
 * of truncating, growing, sealing and writing over it, reads a line, prints "unmapped", and stands still with
 * a kernel on the card that it can no longer see. */
#define _GNU_SOURCE
#include "../gpu.h"

static int error(int result)
{
    return result < 0 ? errno : 0;
}

int main(void)
{
    char path[64];
    struct work w;
    struct gpu g;
    int again, shrunk, grown, sealed, through_proc;

    gpu_open(&g);
    must(work_make(&g, &w, 0x100) == NV_OK, "group");
    submit(&g, &w, 10000000000);
    shrunk = error(ftruncate(w.fd, 0));
    grown = error(ftruncate(w.fd, 1 << 30));
    sealed = error(fcntl(w.fd, F_ADD_SEALS, F_SEAL_WRITE));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", w.fd);
    again = open(path, O_RDWR | O_TRUNC);
    through_proc = again < 0 ? errno : error(ftruncate(again, 0));
    say("%d %d %d %d", shrunk, grown, sealed, through_proc);
    told();
    /* A hole reads as zeroes: no access faults. */
    fallocate(w.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MEMORY_BYTES);
    madvise(w.at, MEMORY_BYTES, MADV_REMOVE);
    munmap(w.at, MEMORY_BYTES);
    close(w.fd);
    rm_free(g.ctl, g.client, 0x101);
    say("unmapped");
    hold();
}
