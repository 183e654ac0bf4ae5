/* Callers that become another process, or whose descriptors become other files, between two calls of the same
 * thread. Static and not position independent: the same variable is at the same address in every process that
 * runs it, so that a result in the wrong process would be seen there. Usage: changing
 * files|vfork|exec|close|tid. Prints "ok". */
#define _GNU_SOURCE
#include "rm.h"
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { POISON = 0x5a5a5a5a, REPEATS = 5 }; /* often enough for everything that is remembered to be in use */

static struct rm_gpu_ids ids;
static char *self;

/* Stays open in what this process becomes. */
static int open_ctl(uint32_t *client)
{
    int fd = open("/dev/nvidiactl", O_RDWR);

    must(fd >= 0, "open");
    *client = 0;
    make_client(fd, client);
    return fd;
}

static int64_t ask(int fd, uint32_t client)
{
    memset(&ids, POISON & 0xff, sizeof(ids));
    return rm_control(fd, client, client, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, &ids, sizeof(ids));
}

static int answered(void)
{
    return ids.id[0] != POISON && ids.id[RM_MAX_CARDS - 1] == UINT32_MAX;
}

static void must_answer(int fd, uint32_t client)
{
    for (int i = 0; i < REPEATS; i++)
        must(ask(fd, client) == NV_OK && answered(), "answer");
}

static void files(void)
{
    uint32_t one, two;
    int fd = open_ctl(&one), other = open_ctl(&two), kept = dup(fd), pipes[2];
    pid_t child;
    int status;

    for (int round = 0; round < 3; round++) {
        must_answer(fd, one);
        must(ask(fd, two) == NV_ERR_INVALID_CLIENT, "the other file's client");
        dup2(other, fd);
        must(ask(fd, one) == NV_ERR_INVALID_CLIENT, "the file before's client");
        must_answer(fd, two);
        if ((child = fork()) == 0) {
            dup2(kept, fd);
            must(ask(fd, two) == NV_ERR_INVALID_CLIENT, "the parent's file's client");
            must_answer(fd, one);
            _exit(0);
        }
        must(waitpid(child, &status, 0) == child && status == 0, "child");
        must_answer(fd, two);
        must(pipe(pipes) == 0 && dup2(pipes[0], fd) == fd, "pipe");
        must(ask(fd, two) == -ENOTTY, "a pipe");
        close(pipes[0]);
        close(pipes[1]);
        close(fd);
        must(ask(fd, two) == -EBADF, "no file");
        dup2(kept, fd);
    }
    /* The last holder goes: what was remembered of the file is not what the next one under its number is. */
    close(kept);
    close(fd);
    must(open_ctl(&two) == fd, "the same number");
    must(ask(fd, one) == NV_ERR_INVALID_CLIENT, "a client of a closed file");
    must_answer(fd, two);
}

static void become(const char *how, int fd, uint32_t client, int tell)
{
    char text[3][16];

    snprintf(text[0], sizeof(text[0]), "%d", fd);
    snprintf(text[1], sizeof(text[1]), "%u", client);
    snprintf(text[2], sizeof(text[2]), "%d", tell);
    execl(self, self, how, text[0], text[1], text[2], NULL);
    _exit(2);
}

/* A child in its parent's memory calls, becomes another program under the same thread id, and calls again. */
static void vfork_then_exec(void)
{
    uint32_t client;
    int fd = open_ctl(&client), status;
    pid_t child = vfork();

    if (child == 0) {
        must_answer(fd, client);
        memset(&ids, POISON & 0xff, sizeof(ids));
        become("executed", fd, client, -1);
    }
    must(waitpid(child, &status, 0) == child && status == 0, "child");
    must(ids.id[0] == POISON && ids.id[RM_MAX_CARDS - 1] == POISON, "an answer in the wrong process");
}

static uint32_t the_client;
static int the_fd, go[2];

static void *exec_from_thread(void *arg)
{
    become(arg, the_fd, the_client, go[1]);
    return NULL;
}

/* Shares the memory of a process that is another program by the time it looks. */
static int stays_behind(void *arg)
{
    char byte;

    (void)arg;
    close(go[1]);
    while (read(go[0], &byte, 1) < 0 && errno == EINTR)
        ;
    return ids.id[0] != POISON || ids.id[RM_MAX_CARDS - 1] != POISON;
}

/* A thread becomes another program, under the id of the leader, who has called; the old memory lives on. */
static void exec_in_thread(void)
{
    static _Alignas(16) char stack[65536];
    pthread_t thread;

    the_fd = open_ctl(&the_client);
    must_answer(the_fd, the_client);
    memset(&ids, POISON & 0xff, sizeof(ids));
    must(pipe(go) == 0, "pipe");
    must(clone(stays_behind, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL) > 0, "clone");
    pthread_create(&thread, NULL, exec_from_thread, "executed");
    pause();
}

static void executed(int fd, uint32_t client, int tell)
{
    int status;

    must_answer(fd, client);
    if (tell < 0)
        _exit(0);
    close(tell);
    must(wait(&status) > 0 && status == 0, "an answer in the wrong process");
}

static void hold_memory(int fd, uint32_t client)
{
    must(rm_device(fd, client) == NV_OK, "device");
    must(rm_memory(fd, client, FIRST_MEMORY, MIB) == NV_OK, "memory");
}

/* Leaves nothing open, and stays. */
static void close_all(void)
{
    uint32_t client;
    int fd = open_ctl(&client);

    hold_memory(fd, client);
    must_answer(fd, client);
    say("holding");
    getchar();
    close(fd);
    say("closed");
    pause();
}

static void *call_in_thread(void *tid)
{
    char byte;

    must_answer(the_fd, the_client);
    *(pid_t *)tid = gettid();
    say("thread");
    while (read(go[0], &byte, 1) < 0 && errno == EINTR)
        ;
    return NULL;
}

/* A process gets the id that a thread of another one had, in two pid namespaces, and calls on the same file.
 * Reads the id in the outer one. */
static void thread_id_comes_again(void)
{
    pthread_t thread;
    uint32_t own = 0;
    pid_t tid[2] = {0};
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)tid, .set_tid_size = 2};
    long child;

    the_fd = open_ctl(&the_client);
    must(pipe(go) == 0, "pipe");
    pthread_create(&thread, NULL, call_in_thread, &tid[0]);
    must(scanf("%d", &tid[1]) == 1, "an id");
    close(go[1]);
    pthread_join(thread, NULL);
    /* The kernel tells who joins before the id is free. */
    while ((child = syscall(SYS_clone3, &args, sizeof(args))) < 0 && errno == EEXIST)
        usleep(1000);
    must(child >= 0, "clone3");
    if (child == 0) {
        must_answer(the_fd, the_client);
        make_client(the_fd, &own);
        hold_memory(the_fd, own);
        say("holding");
    }
    pause();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    self = argv[0];
    if (!strcmp(what, "files"))
        files();
    else if (!strcmp(what, "vfork"))
        vfork_then_exec();
    else if (!strcmp(what, "exec"))
        exec_in_thread();
    else if (!strcmp(what, "close"))
        close_all();
    else if (!strcmp(what, "tid"))
        thread_id_comes_again();
    else if (!strcmp(what, "executed") && argc > 4)
        executed(atoi(argv[2]), (uint32_t)strtoul(argv[3], NULL, 10), atoi(argv[4]));
    else
        return 2;
    printf("ok\n");
    return 0;
}
