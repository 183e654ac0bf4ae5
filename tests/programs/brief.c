/* Containers' processes that live for an instant, one after the other, without a runtime in between. Usage:
 * brief ROOT CARD
 *
 * ROOT, which has the device nodes, becomes the root of all files. On a line "life" a child begins, says
 * "born PID FD", FD being its seccomp listener, and does on each further line what a program does with a card
 * in its life: "work" once, then "call", which makes one more allocation, as often as told; whatever else
 * ends it. "done" and "gone" are the answers. */
#define _GNU_SOURCE
#include "gpu.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { GROUP = 0x900, FILES = 4, BUFFERS = 8 };

/* Every call of type 'F'. */
static long listener(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'F' << 8, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = sizeof(f) / sizeof(*f), .filter = f};

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
}

static struct gpu g;
static uint32_t calls;

static void work(void)
{
    struct work w;
    uint32_t client;

    gpu_open(&g);
    for (uint32_t i = 0; i < BUFFERS; i++)
        must(rm_memory(g.ctl, g.client, FIRST_MEMORY + i, MIB) == NV_OK, "memory");
    must(work_make(&g, &w, GROUP) == NV_OK, "channel");
    submit(&g, &w, 10000);
    for (int i = 0; i < FILES; i++) {
        client = 0;
        close(open_client(&client));
    }
    /* The others end with their file. */
    for (uint32_t i = 0; i < BUFFERS / 2; i++)
        must(rm_free(g.ctl, g.client, FIRST_MEMORY + i) == NV_OK, "free");
}

static int live(void)
{
    char line[16];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    say("born %d %ld", (int)getpid(), listener());
    while (fgets(line, sizeof(line), stdin) && (!strcmp(line, "work\n") || !strcmp(line, "call\n"))) {
        if (*line == 'w')
            work();
        else
            must(rm_memory(g.ctl, g.client, FIRST_MEMORY + BUFFERS + calls++, MIB) == NV_OK, "memory");
        say("done");
    }
    return 0;
}

int main(int argc, char **argv)
{
    int status;

    if (argc != 3)
        return 2;
    card_number = (uint32_t)atoi(argv[2]);
    must(chroot(argv[1]) == 0 && chdir("/") == 0, argv[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Nothing is read ahead of a child's lines. */
    setvbuf(stdin, NULL, _IONBF, 0);
    while (told()) {
        if (fork() == 0)
            _exit(live());
        must(wait(&status) > 0 && !status, "a life");
        say("gone");
    }
    return 0;
}
