/* What nvidia-uvm keeps of a CUDA program that frees behind its library's back: the driver's own library
 * makes everything, by calls that this program sees, and what it would have unmapped or unregistered first is
 * freed at once. Usage: uvm_keeps groups N        N processes, one after the other: each makes a context,
 * frees its channel groups, and stays uvm_keeps memory N MIB    N times: allocates, and frees the object
 *        uvm_keeps message N MIB   N processes: each allocates and ends, its files of nvidia-uvm in a message
 * Prints "KEPT DONE SEEN", and stands still: how often it went well, how many objects were freed or files
 * were sent, and how many registrations or mappings it has seen. */
#define _GNU_SOURCE
#include "cuda_driver.h"
#include "pass_fd.h"
#include "rm.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { NAMES = 256, FILES = 8, LET_GO_S = 2 };

struct name {
    int fd;
    uint32_t client, handle;
};

static struct seen {
    struct name group[NAMES], memory[NAMES];
    uint32_t groups, memories;
    int file[FILES];
    uint32_t files;
} seen;

/* What all processes have done. */
static struct total {
    uint32_t kept, done, seen;
} * total;

static void note(struct name *list, uint32_t *n, int fd, const struct rm_alloc_short *a)
{
    if (*n < NAMES)
        list[(*n)++] = (struct name){fd, a->root, a->handle};
}

static void note_alloc(int fd, unsigned long cmd, const struct rm_alloc_short *a)
{
    uint32_t status = RM_SIZE(cmd) == sizeof(struct rm_alloc)
                          ? ((const struct rm_alloc *)(const void *)a)->status
                          : a->status;

    if (status != NV_OK)
        return;
    if (a->class_id == KEPLER_CHANNEL_GROUP_A)
        note(seen.group, &seen.groups, fd, a);
    if (a->class_id == NV01_MEMORY_LOCAL_USER)
        note(seen.memory, &seen.memories, fd, a);
}

/* In place of libc's, for libraries too. */
int ioctl(int fd, unsigned long cmd, ...)
{
    va_list list;
    void *arg;
    int result;

    va_start(list, cmd);
    arg = va_arg(list, void *);
    va_end(list);
    result = (int)syscall(SYS_ioctl, fd, cmd, arg);
    if (cmd == UVM_INITIALIZE && seen.files < FILES)
        seen.file[seen.files++] = fd;
    if (result == 0 && (cmd == UVM_REGISTER_CHANNEL || cmd == UVM_MAP_EXTERNAL_ALLOCATION))
        total->seen++;
    if (result == 0 && RM_NR(cmd) == NV_ESC_RM_ALLOC && cmd >> 8 & 0xff && RM_SIZE(cmd))
        note_alloc(fd, cmd, arg);
    return result;
}

static void free_all(const struct name *list, uint32_t n)
{
    while (n--)
        total->done += rm_free(list[n].fd, list[n].client, list[n].handle) == NV_OK;
}

static void begin(void)
{
    cuda_load();
    cuda_context();
}

static int allocate(uint32_t mib)
{
    CUdeviceptr at;

    return cuda.mem_alloc(&at, (size_t)mib * MIB);
}

static void keep_groups(int tell)
{
    begin();
    free_all(seen.group, seen.groups);
    must(write(tell, "", 1) == 1, "tell");
    hold();
}

static void keep_in_message(int to, uint32_t mib)
{
    begin();
    cuda_must(allocate(mib), "cuMemAlloc");
    if (!seen.files) /* as with the simulated card's library */
        (void)ioctl(open_node("/dev/nvidia-uvm"), UVM_INITIALIZE, NULL);
    for (uint32_t i = 0; i < seen.files; i++)
        total->done += pass_fd(to, seen.file[i], false) >= 0;
    _exit(0);
}

/* One process at a time, until one is refused. */
static void processes(uint32_t n, bool stay, uint32_t mib)
{
    int to_nobody[2], tell[2], status;
    char byte;

    must(!socketpair(AF_UNIX, SOCK_DGRAM, 0, to_nobody), "socketpair");
    while (total->kept < n) {
        pid_t child;

        must(!pipe(tell), "pipe");
        if (!(child = fork())) {
            if (stay)
                keep_groups(tell[1]);
            keep_in_message(to_nobody[1], mib);
        }
        close(tell[1]);
        if (stay ? read(tell[0], &byte, 1) != 1 : waitpid(child, &status, 0) != child || status)
            return;
        total->kept++;
        close(tell[0]);
        if (!stay) /* as long as mgpud takes to let go of a file that no process shows */
            sleep(LET_GO_S);
    }
}

static void keep_memory(uint32_t n, uint32_t mib)
{
    begin();
    while (total->kept < n) {
        uint32_t before = seen.memories;

        if (allocate(mib) != CUDA_SUCCESS)
            return;
        total->kept++;
        free_all(&seen.memory[before], seen.memories - before);
        seen.memories = before;
    }
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 2 ? (uint32_t)atoi(argv[2]) : 1, mib = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;

    if (argc < 3)
        return 2;
    total = mmap(NULL, sizeof(*total), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(total != MAP_FAILED, "mmap");
    if (!strcmp(argv[1], "memory"))
        keep_memory(n, mib);
    else
        processes(n, !strcmp(argv[1], "groups"), mib);
    say("%u %u %u", total->kept, total->done, total->seen);
    hold();
}
