/* Threads in calls, and a process that sends them signals as fast as it can: some with handlers that restart
 * the call, some with handlers that end it. Usage: signal_storm SECONDS. Prints "done SIGNALS HELD", and
 * stands still with as many objects of 1 MiB as it knows of. */
#include "../rm.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* However little of a second a busy machine gives it. */
enum { SIGNALS_MIN = 1000 };

enum { THREADS = 4, MEMORIES = 16 };

static uint32_t client;
static int fd;
static volatile bool stopped;
static atomic_int held, signals;
static pid_t *tid; /* shared with who sends */

static void count(int number)
{
    (void)number;
    signals++;
}

/* A call that was torn out of its wait has been carried out or has not: the handle tells. */
static void *calls(void *arg)
{
    uint32_t base = FIRST_MEMORY + 0x100 * (uint32_t)(uintptr_t)arg;

    tid[(uintptr_t)arg] = (pid_t)syscall(SYS_gettid);
    while (!stopped) {
        for (uint32_t i = 0; i < MEMORIES; i++)
            while (rm_memory(fd, client, base + i, MIB) == -EINTR)
                ;
        for (uint32_t i = 0; i < MEMORIES; i++)
            while (rm_free(fd, client, base + i) == -EINTR)
                ;
    }
    return NULL;
}

/* With no sender: what is left is exactly what can still be freed. */
static void *left(void *arg)
{
    uint32_t base = FIRST_MEMORY + 0x100 * (uint32_t)(uintptr_t)arg;

    for (uint32_t i = 0; i < MEMORIES; i++)
        held += rm_free(fd, client, base + i) == NV_OK;
    return NULL;
}

static _Noreturn void send(pid_t process)
{
    for (uint32_t i = 0;; i++)
        if (tid[i % THREADS])
            syscall(SYS_tgkill, process, tid[i % THREADS], i / THREADS % 2 ? SIGUSR1 : SIGUSR2);
}

int main(int argc, char **argv)
{
    struct sigaction restarts = {.sa_handler = count, .sa_flags = SA_RESTART}, ends = {.sa_handler = count};
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);
    pthread_t thread[THREADS];
    pid_t self = getpid(), sender;

    tid = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(tid != MAP_FAILED, "mmap");
    sigaction(SIGUSR1, &restarts, NULL);
    sigaction(SIGUSR2, &ends, NULL);
    fd = open_client(&client);
    for (uintptr_t i = 0; i < THREADS; i++)
        must(!pthread_create(&thread[i], NULL, calls, (void *)i), "thread");
    if (!(sender = fork()))
        send(self);
    while (signals < SIGNALS_MIN || time(NULL) < end)
        usleep(1000);
    kill(sender, SIGKILL);
    while (waitpid(sender, NULL, 0) < 0)
        ;
    stopped = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        left((void *)i);
    say("done %d %d", signals, held);
    hold();
}
