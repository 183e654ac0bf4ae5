#include "rmclient.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void rmc_lock(void)
{
    pthread_mutex_lock(&lock);
}

void rmc_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child must not inherit the lock from a thread that it does not have. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(rmc_lock, rmc_unlock, rmc_unlock);
}
