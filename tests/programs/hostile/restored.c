/* A process such as CRIU restores one: with a filter that notifies, and no listener. It runs on a page of
 * code that is its own, or one that another process watches, which prints "changed" when it is written.
 * Usage: restored private|shared Prints "stops" and stops itself. */
#include "../ioctl_filter.h"
#include "../rm.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { PAGE_BYTES = 4096 };

static void watch(const volatile uint64_t *page)
{
    const uint64_t was = *page;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (*page == was)
        ;
    say("changed");
    _exit(0);
}

int main(int argc, char **argv)
{
    /* kill(edi, esi), for ever */
    static const uint8_t code[] = {0xb8, SYS_kill, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xfe};
    int kind = argc > 1 && !strcmp(argv[1], "shared") ? MAP_SHARED : MAP_PRIVATE;
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, kind | MAP_ANONYMOUS, -1, 0);
    void (*run)(pid_t pid, int signal);

    must(page != MAP_FAILED, "mmap");
    memcpy(page, code, sizeof(code));
    memcpy(&run, &page, sizeof(page));
    if (kind == MAP_SHARED && !fork())
        watch(page);
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    must(!ioctl_filter(SECCOMP_RET_USER_NOTIF, 0), "filter");
    say("stops");
    run(getpid(), SIGSTOP);
}
