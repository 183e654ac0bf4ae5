/* One descriptor, which a second thread makes another file all the time: the container's own two control
 * files, its card, a pipe, nothing. Usage: dup2_race SECONDS. Prints "done MADE WRONG", and stands still with
 * what it has: WRONG counts calls that a file accepted for another one's client. */
#include "../rm.h"
#include <pthread.h>
#include <time.h>

enum { FD = 50, FILES = 4 };

static int file[FILES];
static volatile bool stopped;

static void *change(void *arg)
{
    for (unsigned int i = 0; !stopped; i++) {
        if (i % 7 == 6)
            close(FD);
        else
            dup2(file[i % FILES], FD);
    }
    return arg;
}

static int64_t count_free(int fd, uint32_t client)
{
    int64_t n = 0;

    /* The free of what is not there succeeds: whether it was is told by its name, which is not given
     * twice. */
    for (uint32_t handle = FIRST_MEMORY; handle < FIRST_MEMORY + 64; handle++) {
        n += rm_memory(fd, client, handle, MIB) == NV_ERR_INSERT_DUPLICATE_NAME;
        rm_free(fd, client, handle);
    }
    return n;
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    uint32_t one = 0, two = 0, made_one = 0, made_two = 0;
    unsigned int wrong = 0;
    pthread_t thread;
    int pipes[2];

    file[0] = open_client(&one);
    file[1] = open_client(&two);
    file[2] = open_node("/dev/nvidia0");
    must(!pipe(pipes), "pipe");
    file[3] = pipes[0];
    must(!pthread_create(&thread, NULL, change, NULL), "thread");
    while (time(NULL) < end) {
        for (uint32_t i = 0; i < 64; i++) {
            made_one += rm_memory(FD, one, FIRST_MEMORY + i, MIB) == NV_OK;
            made_two += rm_memory(FD, two, FIRST_MEMORY + i, MIB) == NV_OK;
        }
        /* What was made through one file is there on that file, however often it changed. */
        wrong += count_free(file[0], one) != made_one;
        wrong += count_free(file[1], two) != made_two;
        made_one = made_two = 0;
    }
    rm_memory(FD, one, FIRST_MEMORY, MIB);
    rm_memory(FD, two, FIRST_MEMORY, MIB);
    stopped = true;
    pthread_join(thread, NULL);
    say("done %u", wrong);
    hold();
}
