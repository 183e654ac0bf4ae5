/* Makes and frees objects under a signal every 200 us, as profilers and language runtimes send them. Every
 * call is to come out right. Usage: alarm ROUNDS. Prints "ok ROUNDS". */
#include "rm.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t signals;

static void count(int signal)
{
    (void)signal;
    signals++;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    struct itimerval every = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
    int rounds = argc > 1 ? atoi(argv[1]) : 1;

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < rounds; i++) {
        uint32_t client = 0;
        int ctl = open_client(&client), card = open_node("/dev/nvidia0");
        struct rm_register_fd reg = {.ctl_fd = ctl};

        must(!ioctl(card, RM_CMD(NV_ESC_REGISTER_FD, sizeof(reg)), &reg), "register");
        for (int k = 0; k < 20; k++) {
            must(rm_memory(ctl, client, FIRST_MEMORY, MIB) == NV_OK, "alloc");
            must(rm_free(ctl, client, FIRST_MEMORY) == NV_OK, "free");
        }
        close(card);
        close(ctl);
    }
    printf("ok %d, %s\n", rounds, signals > rounds ? "often interrupted" : "hardly interrupted");
    return 0;
}
