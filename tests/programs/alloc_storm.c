/* Threads that allocate and free 64 KiB on one control file as fast as they can, until they are killed.
 * Usage: alloc_storm N */
#include "rm.h"
#include <pthread.h>

static int fd;
static uint32_t client;

static void *storm(void *arg)
{
    uint32_t handle = FIRST_MEMORY + (uint32_t)(uintptr_t)arg;

    for (;;)
        if (rm_memory(fd, client, handle, 65536) == NV_OK)
            rm_free(fd, client, handle);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    fd = open_client(&client);
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 100); i++)
        must(!pthread_create(&thread, NULL, storm, (void *)(uintptr_t)i), "thread");
    say("storming");
    hold();
}
