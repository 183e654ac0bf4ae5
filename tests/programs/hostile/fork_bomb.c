/* Every process of it makes two more, for as long as the container may have more, and each takes memory until
 * it is refused. Usage: fork_bomb SECONDS. Prints "done" after that time, and stands still. */
#include "../rm.h"
#include <signal.h>

static void allocate(void)
{
    uint32_t client = 0;
    int fd = open_client(&client);

    for (uint32_t i = 0; rm_memory(fd, client, FIRST_MEMORY + i, MIB) == NV_OK; i++)
        ;
}

static void bomb(void)
{
    for (;;) {
        if (fork() == 0 || fork() == 0)
            continue;
        allocate();
        hold();
    }
}

int main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_IGN);
    if (fork() == 0)
        bomb();
    sleep(argc > 1 ? (unsigned int)atoi(argv[1]) : 1);
    say("done");
    hold();
}
