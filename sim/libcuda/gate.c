/* Calls of the program's pass a gate, which a checkpoint closes: those on their way end, new ones wait. */
#include "gate.h"
#include "../../base/mutex.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool closed;
static unsigned int inside; /* threads */
/* Of this thread: passages that have not ended. */
static __thread unsigned int depth;

void gate_pass(void)
{
    if (depth++)
        return;
    LOCKED(&lock);
    while (closed)
        pthread_cond_wait(&opened, &lock);
    inside++;
}

void gate_leave(void)
{
    if (--depth)
        return;
    LOCKED(&lock);
    inside--;
}

void gate_exempt(void)
{
    depth++;
}

void gate_close(void)
{
    LOCKED(&lock);
    closed = true;
}

void gate_open(void)
{
    LOCKED(&lock);
    closed = false;
    pthread_cond_broadcast(&opened);
}

bool gate_empty(void)
{
    LOCKED(&lock);
    return !inside;
}

/* A child has the forking thread alone, and nothing of the driver that could be moved. */
static void in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&opened, NULL);
    closed = false;
    inside = depth ? 1 : 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}
