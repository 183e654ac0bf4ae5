#define _GNU_SOURCE
#include "privileges.h"
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif

void drop_thread_privileges(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    static const int dropped[] = {CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_PERFMON};

    if (syscall(SYS_capget, &head, data) < 0)
        goto fail;
    for (unsigned int i = 0; i < sizeof(dropped) / sizeof(*dropped); i++) {
        uint32_t bit = 1u << (dropped[i] % 32);

        data[dropped[i] / 32].effective &= ~bit;
        data[dropped[i] / 32].permitted &= ~bit;
        data[dropped[i] / 32].inheritable &= ~bit;
    }
    if (syscall(SYS_capset, &head, data) == 0)
        return;
fail:
    perror("mgpud: capabilities of a mediating thread");
    abort();
}
