#include "thread.h"
#include <pthread.h>
#include <signal.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* The name by which every libc has it, as the library is to run on old ones too. */
__asm__(".symver pthread_create,pthread_create@GLIBC_2.2.5");
#endif

bool thread_start(void *(*work)(void *data), void *data)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    bool started;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    started = !pthread_create(&thread, &attributes, work, data);
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}
