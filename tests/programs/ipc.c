/* Two processes of a container that have the same memory. Told a line at a time what to do, "WHO WHAT", WHO
 * being a or b; prints the CUDA error number, or what it says:
 *
 *   create MIB     memory without an address        alloc MIB     memory with one
 *   export         sends the other a descriptor     share         sends the other a handle
 *   import         receives that                    open          receives that
 *   drop           closes its own of it             close         of what was opened
 *   release        of what was made or imported     free          of what was made
 *   room           how much it sees free, in MiB    end           the process ends, without a word
 */
#include "cuda_driver.h"
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct location {
    int type, kinds, place, id;
    void *none;
    unsigned char flags[8];
};
struct handle {
    char bytes[64];
};

static struct {
    int (*create)(uint64_t *memory, size_t bytes, const struct location *where, unsigned long long flags);
    int (*release)(uint64_t memory);
    int (*give)(void *fd, uint64_t memory, int kind, unsigned long long flags);
    int (*take)(uint64_t *memory, void *fd, int kind);
    int (*share)(struct handle *handle, CUdeviceptr pointer);
    int (*open)(CUdeviceptr *pointer, struct handle handle, unsigned int flags);
    int (*close)(CUdeviceptr pointer);
} ipc;

static uint64_t memory;
static CUdeviceptr pointer;
static int fd = -1, other;

static void load(void)
{
    void *lib;

    cuda_load();
    lib = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&ipc.create = cuda_symbol(lib, "cuMemCreate");
    *(void **)&ipc.release = cuda_symbol(lib, "cuMemRelease");
    *(void **)&ipc.give = cuda_symbol(lib, "cuMemExportToShareableHandle");
    *(void **)&ipc.take = cuda_symbol(lib, "cuMemImportFromShareableHandle");
    *(void **)&ipc.share = cuda_symbol(lib, "cuIpcGetMemHandle");
    *(void **)&ipc.open = cuda_symbol(lib, "cuIpcOpenMemHandle_v2");
    *(void **)&ipc.close = cuda_symbol(lib, "cuIpcCloseMemHandle");
    cuda_context();
}

/* A descriptor with the bytes; -1: none. */
static int pass(void *bytes, size_t n, int with, int receives)
{
    union {
        char rights[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec iov = {bytes, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control};
    int got = -1;

    m.msg_controllen = with >= 0 || receives ? sizeof(control) : 0;
    memcpy(CMSG_DATA(&control.head), &with, sizeof(with));
    if ((receives ? recvmsg(other, &m, 0) : sendmsg(other, &m, 0)) != (ssize_t)n)
        exit(3);
    if (receives && CMSG_FIRSTHDR(&m))
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(got));
    return got;
}

static int give(void)
{
    int e = ipc.give(&fd, memory, 1, 0);

    return e ? e : (pass(&e, sizeof(e), fd, 0), 0);
}

static int take(void)
{
    int said;

    fd = pass(&said, sizeof(said), -1, 1);
    return ipc.take(&memory, (void *)(intptr_t)fd, 1);
}

static int share(void)
{
    struct handle handle;
    int e = ipc.share(&handle, pointer);

    return e ? e : (pass(&handle, sizeof(handle), -1, 0), 0);
}

static int open_shared(void)
{
    struct handle handle;

    pass(&handle, sizeof(handle), -1, 1);
    return ipc.open(&pointer, handle, 1);
}

static int room(void)
{
    size_t left, all;

    cuda_must(cuda.mem_info(&left, &all), "cuMemGetInfo");
    return (int)(left >> 20);
}

static int carry_out(const char *what)
{
    const struct location device = {.type = 1, .kinds = 1, .place = 1};
    size_t bytes;

    if (sscanf(what, "create %zu", &bytes) == 1)
        return ipc.create(&memory, bytes << 20, &device, 0);
    if (sscanf(what, "alloc %zu", &bytes) == 1)
        return cuda.mem_alloc(&pointer, bytes << 20);
    if (!strncmp(what, "export", 6))
        return give();
    if (!strncmp(what, "import", 6))
        return take();
    if (!strncmp(what, "share", 5))
        return share();
    if (!strncmp(what, "open", 4))
        return open_shared();
    if (!strncmp(what, "close", 5))
        return ipc.close(pointer);
    if (!strncmp(what, "free", 4))
        return cuda.mem_free(pointer);
    if (!strncmp(what, "release", 7))
        return ipc.release(memory);
    if (!strncmp(what, "drop", 4))
        return close(fd);
    if (!strncmp(what, "room", 4))
        return room();
    exit(0);
}

static void child(FILE *said)
{
    char line[64];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load();
    dprintf(1, "ready\n");
    while (fgets(line, sizeof(line), said))
        dprintf(1, "%d\n", carry_out(line));
    exit(0);
}

int main(void)
{
    int between[2], down[2], loaded = 0;
    char line[64];
    pid_t b;

    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, between) < 0 || pipe(down) < 0 || (b = fork()) < 0)
        return 3;
    other = between[b == 0];
    close(between[b != 0]);
    if (b == 0) {
        close(down[1]);
        child(fdopen(down[0], "r"));
    }
    while (fgets(line, sizeof(line), stdin)) {
        if (!strncmp(line, "b ", 2)) {
            if (write(down[1], line + 2, strlen(line + 2)) < 0)
                return 3;
            if (!strncmp(line, "b end", 5))
                dprintf(1, "%d\n", waitpid(b, NULL, 0) == b ? 0 : 3);
            continue;
        }
        if (!loaded++)
            load();
        dprintf(1, "%d\n", carry_out(line + 2));
    }
    return 0;
}
