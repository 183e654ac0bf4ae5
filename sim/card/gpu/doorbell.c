#include "doorbell.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct gpu_doorbell *gpu_doorbell_create(struct gpu *gpu, uint32_t client)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = WAKE_DOORBELL + client};
    struct gpu_doorbell *doorbell = malloc(sizeof *doorbell);

    if (!doorbell)
        return NULL;
    *doorbell = (struct gpu_doorbell){
        .gpu = gpu, .client = client, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .page_fd = -1};
    if (doorbell->fd >= 0 && !epoll_ctl(gpu->epoll_fd, EPOLL_CTL_ADD, doorbell->fd, &event))
        return doorbell;
    if (doorbell->fd >= 0)
        close(doorbell->fd);
    free(doorbell);
    return NULL;
}

void gpu_doorbell_free(struct gpu_doorbell *doorbell)
{
    /* A program's copy keeps the eventfd alive, and a close alone would leave it watched. */
    epoll_ctl(doorbell->gpu->epoll_fd, EPOLL_CTL_DEL, doorbell->fd, NULL);
    close(doorbell->fd);
    polled_end(doorbell);
    free(doorbell);
}

int gpu_doorbell_fd(const struct gpu_doorbell *doorbell)
{
    int fd = fcntl(doorbell->fd, F_DUPFD_CLOEXEC, 0);

    return fd < 0 ? -errno : fd;
}
