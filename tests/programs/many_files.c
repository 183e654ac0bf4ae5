/* Opens files of the driver until it may not. Usage: many_files N. Prints "opened K errno E" and sleeps. */
#define _GNU_SOURCE
#include "../../native_sched/nvidia/rm/rm_abi.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int limit = argc > 1 ? atoi(argv[1]) : 1, opened = 0;
    struct rm_sys_params p = {0};

    while (opened < limit) {
        int fd = open("/dev/nvidiactl", O_RDWR);

        if (fd < 0) { /* its own limit of descriptors: a child goes on */
            if (fork()) {
                pause();
                return 0;
            }
            closefrom(3);
            continue;
        }
        errno = 0;
        if (ioctl(fd, RM_CMD(NV_ESC_SYS_PARAMS, sizeof(p)), &p))
            break;
        opened++;
    }
    printf("opened %d errno %d\n", opened, errno);
    fflush(stdout);
    pause();
    return 0;
}
