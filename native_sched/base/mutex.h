/* Mutexes: held to the end of a scope, and those that a real-time thread takes. */
#ifndef MGPU_MUTEX_H
#define MGPU_MUTEX_H
#include <pthread.h>
#include <time.h>

static inline void unlock_mutex(pthread_mutex_t **m)
{
    pthread_mutex_unlock(*m);
}
#define LOCKED_(name, mutex)                       \
    __attribute__((cleanup(unlock_mutex), unused)) \
    pthread_mutex_t *name = (pthread_mutex_lock(mutex), (mutex))

/* Whoever holds one meanwhile runs at the priority of who waits for it. */
static inline void mutex_init_inheriting(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}
/* pthread_cond_timedwait() of it goes by CLOCK_MONOTONIC. */
static inline void cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}
#endif
