/* Calls of the program's pass a gate, which a checkpoint closes: those on their way end, new ones wait. */
#include "gate.h"
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
    pthread_mutex_lock(&lock);
    while (closed)
        pthread_cond_wait(&opened, &lock);
    inside++;
    pthread_mutex_unlock(&lock);
}

void gate_leave(void)
{
    if (--depth)
        return;
    pthread_mutex_lock(&lock);
    inside--;
    pthread_mutex_unlock(&lock);
}

void gate_exempt(void)
{
    depth++;
}

void gate_close(void)
{
    pthread_mutex_lock(&lock);
    closed = true;
    pthread_mutex_unlock(&lock);
}

void gate_open(void)
{
    pthread_mutex_lock(&lock);
    closed = false;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

bool gate_empty(void)
{
    bool empty;

    pthread_mutex_lock(&lock);
    empty = !inside;
    pthread_mutex_unlock(&lock);
    return empty;
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
