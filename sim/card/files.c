/* Open files. The card knows of a file's end by what it keeps of it: the end of a pipe whose other one the
 * program has, or of nvidia-uvm's, which can be mapped (managed.h), the memory. On that the program's own
 * open file has a lock, and a thread waits for it: it comes when neither a descriptor nor a mapping of that
 * one is left. */
#include "uvm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <unistd.h>

enum { HANGUP_BATCH = 64, PIPE_BYTES = 4096, STACK_BYTES = 64 << 10 };

bool file_is_held(struct rm *rm, uint64_t id)
{
    const struct sim_file *file = file_find(rm, id);
    struct pollfd end = {.fd = file ? file->end : -1};

    if (file && file->node == SIM_NODE_UVM)
        return flock(file->end, LOCK_EX | LOCK_NB) < 0;
    return file && poll(&end, 1, 0) == 0;
}

static void file_free(struct rm *rm, struct sim_file *file)
{
    uvm_end(rm, file);
    objects_free_file(rm, file);
    os_events_end(rm, file->id, 0);
    exports_free(file);
    file_forget(rm, file);
    if (file->end >= 0)
        close(file->end);
    free(file);
}

static void hang_up(struct rm *rm, uint64_t id)
{
    struct sim_event event = {.kind = SIM_EVENT_FILE_GONE, .file = id};
    struct sim_file *file;

    pthread_mutex_lock(&rm->lock);
    file = file_find(rm, id);
    if (file)
        file_free(rm, file);
    pthread_mutex_unlock(&rm->lock);
    if (file)
        subscribers_tell(&event);
}

/* The program's end, or a negative errno. */
static int pipe_make(struct rm *rm, struct sim_file *file)
{
    /* No event is asked for: EPOLLERR, the last reader's end, always comes. */
    struct epoll_event event = {.data.u64 = file->id};
    int ends[2], error;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return -errno;
    /* Nothing is ever written: the smallest buffer counts least against the user's pipe limit. */
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    file->end = ends[1];
    if (!epoll_ctl(rm->hangup_epoll, EPOLL_CTL_ADD, ends[1], &event))
        return ends[0];
    error = -errno;
    close(ends[0]);
    return error;
}

struct waiting {
    struct rm *rm;
    uint64_t id;
    int end;
};

static void *wait_for_end(void *argument)
{
    const struct waiting of = *(struct waiting *)argument;

    free(argument);
    while (flock(of.end, LOCK_EX) && errno == EINTR)
        ;
    if (of.rm->close_us)
        usleep(of.rm->close_us);
    hang_up(of.rm, of.id);
    return NULL;
}

static int wait_begin(struct rm *rm, const struct sim_file *file)
{
    struct waiting *of = malloc(sizeof *of);
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    if (!of)
        return -ENOMEM;
    *of = (struct waiting){rm, file->id, file->end};
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    error = -pthread_create(&thread, &attributes, wait_for_end, of);
    pthread_attr_destroy(&attributes);
    if (error)
        free(of);
    return error;
}

/* The same of nvidia-uvm. */
static int memory_make(struct rm *rm, struct sim_file *file)
{
    int given, error;

    file->end = memfd_sealed("nvidia-uvm", MANAGED_FILE_BYTES, F_SEAL_SEAL);
    given = file->end < 0 ? file->end : memfd_reopen(file->end, O_RDWR);
    if (given < 0)
        return given;
    error = flock(given, LOCK_SH) ? -errno : wait_begin(rm, file);
    if (!error)
        return given;
    close(given);
    return error;
}

int file_open(struct rm *rm, const struct sim_request *request, struct sim_file **out, int *fd)
{
    struct sim_file *file;

    if (request->node > SIM_NODE_UVM)
        return -EINVAL;
    if (request->node == SIM_NODE_CARD && request->minor >= rm->card_count)
        return -ENODEV;
    file = calloc(1, sizeof *file);
    if (!file)
        return -ENOMEM;
    file->id = ++rm->last_file;
    file->node = request->node;
    file->card = request->node == SIM_NODE_CARD ? &rm->cards[request->minor] : NULL;
    file->tgid = request->tgid;
    file->end = -1;
    file_add(rm, file);
    *fd = file->node == SIM_NODE_UVM ? memory_make(rm, file) : pipe_make(rm, file);
    if (*fd >= 0) {
        *out = file;
        return 0;
    }
    file_free(rm, file);
    return *fd;
}

void files_watch(struct rm *rm)
{
    struct epoll_event events[HANGUP_BATCH];

    for (;;) {
        int count = epoll_wait(rm->hangup_epoll, events, HANGUP_BATCH, -1);

        if (count > 0 && rm->close_us)
            usleep(rm->close_us);
        for (int i = 0; i < count; i++)
            hang_up(rm, events[i].data.u64);
    }
}
