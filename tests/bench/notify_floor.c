/* What the kernel alone takes for a notified ioctl: the floor under what rm_latency measures, on the same
 * machine in the same run. Usage: notify_floor N Prints one JSON object: "empty" is receiving and answering;
 * "calls" adds the system calls of notified.h. */
#define _GNU_SOURCE
#include "notified.h"

static void measure(const char *name, bool calls, int n)
{
    struct notified c = notified_start(name, n, 1);
    struct seccomp_notif q;
    char buffer[BYTES];

    for (int i = 0; i < n && notified_next(&c, &q); i++) {
        if (calls) {
            notified_read(&c, &q, buffer);
            notified_valid(&c, &q);
            notified_write(&q, buffer);
        }
        notified_answer(&c, &q);
    }
    notified_end(&c);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 20000;

    printf("{");
    fflush(stdout);
    measure("empty", false, n);
    printf(", ");
    fflush(stdout);
    measure("calls", true, n);
    printf("}\n");
    return 0;
}
