/* Processes that end, or become another program, while threads of theirs are in the middle of calls.
 * Usage: exit_inside SECONDS. Prints "done N" after N processes, and stands still with nothing open. */
#include "../rm.h"
#include "lives.h"
#include <pthread.h>
#include <signal.h>

enum { THREADS = 4, AT_ONCE = 3 };

static uint32_t client;
static int fd;
static char *self;

static void *calls(void *arg)
{
    uint32_t base = FIRST_MEMORY + 0x100 * (uint32_t)(uintptr_t)arg;

    for (uint32_t i = 0;; i++) {
        rm_memory(fd, client, base + i % 8, 2 * MIB);
        if (i % 3 == 2)
            rm_free(fd, client, base + i % 8);
    }
    return NULL;
}

static void life(uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    pthread_t thread;

    fd = open_client(&client);
    fcntl(fd, F_SETFD, 0); /* the program that it becomes still has the file */
    for (uintptr_t i = 0; i < THREADS; i++)
        must(!pthread_create(&thread, NULL, calls, (void *)i), "thread");
    usleep(below(&state, 3000));
    switch (below(&state, 4)) {
    case 0:
        kill(getpid(), SIGKILL);
        break;
    case 1:
        execl(self, self, NULL);
        break;
    case 2:
        abort();
    default:
        _exit(0);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) /* what a process has become */
        return 0;
    self = argv[0];
    lives(atoi(argv[1]), AT_ONCE, life);
    hold();
}
