#include "uvm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { HANGUP_BATCH = 64, PIPE_BYTES = 4096 };

static struct sim_file **bucket(struct rm *rm, uint64_t id)
{
    return &rm->files[id % RM_FILE_BUCKETS];
}

struct sim_file *file_find(struct rm *rm, uint64_t id)
{
    struct sim_file *file = *bucket(rm, id);

    while (file && file->id != id)
        file = file->hash_next;
    return file;
}

const struct sim_file *file_of_clients(struct rm *rm, const struct sim_file *file)
{
    return file->registered_with ? file_find(rm, file->registered_with) : file;
}

bool file_is_held(struct rm *rm, uint64_t id)
{
    const struct sim_file *file = file_find(rm, id);
    struct pollfd end = {.fd = file ? file->write_fd : -1};

    return file && poll(&end, 1, 0) == 0;
}

static void file_free(struct rm *rm, struct sim_file *file)
{
    struct sim_file **at = bucket(rm, file->id);

    uvm_end(rm, file);
    objects_free_file(rm, file);
    os_events_end(rm, file->id, 0);
    exports_free(file);
    while (*at != file)
        at = &(*at)->hash_next;
    *at = file->hash_next;
    close(file->write_fd);
    free(file);
}

int file_open(struct rm *rm, const struct sim_request *request, struct sim_file **out, int *read_fd)
{
    struct sim_file *file;
    struct epoll_event event = {0};
    int ends[2];

    if (request->node > SIM_NODE_UVM)
        return -EINVAL;
    if (request->node == SIM_NODE_CARD && request->minor >= rm->card_count)
        return -ENODEV;
    file = calloc(1, sizeof *file);
    if (!file)
        return -ENOMEM;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
        int error = -errno;

        free(file);
        return error;
    }
    /* Nothing is ever written: the smallest buffer counts least against the user's pipe limit. */
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    file->id = ++rm->last_file;
    file->node = request->node;
    file->card = request->node == SIM_NODE_CARD ? &rm->cards[request->minor] : NULL;
    file->tgid = request->tgid;
    file->write_fd = ends[1];
    file->hash_next = *bucket(rm, file->id);
    *bucket(rm, file->id) = file;
    /* No event is asked for: EPOLLERR, the last reader's end, always comes. */
    event.data.u64 = file->id;
    if (epoll_ctl(rm->hangup_epoll, EPOLL_CTL_ADD, ends[1], &event)) {
        int error = -errno;

        close(ends[0]);
        file_free(rm, file);
        return error;
    }
    *out = file;
    *read_fd = ends[0];
    return 0;
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
