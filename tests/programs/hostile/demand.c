/* Threads that each ask for all of a container's cap, at the same time and again and again, and give back
 * what they get. What they ask for is another amount all the time, also while they wait.
 * Usage: demand MIB THREADS Prints "asking". */
#include "../rm.h"
#include <pthread.h>

enum { THREADS_MAX = 64, CHANGE_US = 200 };

static struct rm_memory asked[THREADS_MAX];
static uint32_t client;
static int fd;

static void *ask(void *arg)
{
    struct rm_memory *mine = arg;
    uint32_t handle = FIRST_MEMORY + (uint32_t)(mine - asked);

    for (;;)
        if (rm_alloc(fd, client, DEVICE, handle, NV01_MEMORY_LOCAL_USER, mine, sizeof(*mine)) == NV_OK)
            rm_free(fd, client, handle);
    return NULL;
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    pthread_t thread;

    if (threads < 1 || threads > THREADS_MAX)
        return 2;
    fd = open_client(&client);
    for (int i = 0; i < threads; i++) {
        asked[i].owner = OWNER;
        asked[i].size = strtoull(argv[1], NULL, 10) * MIB;
        must(!pthread_create(&thread, NULL, ask, &asked[i]), "thread");
    }
    say("asking");
    for (uint64_t n = 0;; n++) {
        usleep(CHANGE_US);
        asked[n % (uint64_t)threads].size ^= MIB;
    }
}
