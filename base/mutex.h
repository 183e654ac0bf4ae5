/* Mutexes: held to the end of a scope, and those that a real-time thread takes. */
#ifndef MGPU_MUTEX_H
#define MGPU_MUTEX_H
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined(MGPU_CHECK_LOCKS) && \
    (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__))
#define MGPU_CHECK_LOCKS
#endif

static inline void unlock_mutex(pthread_mutex_t **m)
{
    pthread_mutex_unlock(*m);
}
#define LOCKED_(name, mutex)                       \
    __attribute__((cleanup(unlock_mutex), unused)) \
    pthread_mutex_t *name = (pthread_mutex_lock(mutex), (mutex))
#define LOCKED(mutex) LOCKED_(held, mutex)

/* This thread holds the mutex; checked in debug and sanitizer builds. The owner's place is glibc's. */
static inline void assert_held(const pthread_mutex_t *mutex)
{
#ifdef MGPU_CHECK_LOCKS
    if (__atomic_load_n(&mutex->__data.__owner, __ATOMIC_RELAXED) != (int)syscall(SYS_gettid))
        abort();
#else
    (void)mutex;
#endif
}

/* A thread that holds such a mutex runs at the highest priority of those that wait for it. */
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
