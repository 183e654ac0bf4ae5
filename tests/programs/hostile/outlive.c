/* A process makes memory and ends; a child of its, in a session of its own, keeps the file. Prints "made"
 * when all are there and "gone" when the maker has ended; a line on its input ends the child, which prints
 * "ended". */
#include "../rm.h"
#include <signal.h>
#include <sys/wait.h>

int main(void)
{
    pid_t maker, child;
    int tell[2], status;

    must(!pipe(tell), "pipe");
    if (!(maker = fork())) {
        uint32_t client = 0;
        int fd = open_client(&client);

        must(rm_memory(fd, client, FIRST_MEMORY, 64 * MIB) == NV_OK, "memory");
        if (!(child = fork())) {
            setsid();
            /* The client is the maker's by name; the file is what counts. */
            must(rm_memory(fd, client, FIRST_MEMORY + 1, 32 * MIB) == NV_OK, "the child's memory");
            must(write(tell[1], &(pid_t){getpid()}, sizeof(pid_t)) == sizeof(pid_t), "tell");
            hold();
        }
        _exit(0);
    }
    must(read(tell[0], &child, sizeof(child)) == sizeof(child), "read");
    say("made");
    must(waitpid(maker, &status, 0) == maker && !status, "maker");
    say("gone");
    told();
    kill(child, SIGKILL);
    must(waitpid(child, &status, 0) == child, "child");
    say("ended");
    hold();
}
