/* Opens a file of the driver, uses it and closes it again, N times. Usage: open_close N. Prints "done N", and
 * stands still with nothing open. */
#include "../rm.h"

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1, ctl = open_node("/dev/nvidiactl");
    struct rm_register_fd with = {.ctl_fd = ctl};
    struct rm_sys_params p = {0};

    for (int i = 0; i < n; i++) {
        int fd = open_node(i % 2 ? "/dev/nvidiactl" : "/dev/nvidia0");

        must(!(i % 2 ? ioctl(fd, RM_CMD(NV_ESC_SYS_PARAMS, sizeof(p)), &p)
                     : ioctl(fd, RM_CMD(NV_ESC_REGISTER_FD, sizeof(with)), &with)),
             "first call");
        close(fd);
    }
    close(ctl);
    say("done %d", n);
    hold();
}
