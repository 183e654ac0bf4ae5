/* Filters of the tenant's own on top of ours: one that lets everything be, one that hands the calls to a
 * tracer, one with a listener of its own that answers them itself. Prints "listener ERRNO held MIB status S",
 * and stands still. */
#include "../ioctl_filter.h"
#include "../rm.h"
#include <sys/prctl.h>

int main(void)
{
    uint32_t client = 0, n = 0;
    int fd = open_client(&client), listener;
    int64_t status;

    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
    must(ioctl_filter(SECCOMP_RET_ALLOW, 0) == 0, "a filter that allows");
    must(ioctl_filter(SECCOMP_RET_LOG, 0) == 0, "a filter that logs");
    must(ioctl_filter(SECCOMP_RET_TRACE, 0) == 0, "a filter that hands to a tracer");
    errno = 0;
    listener = ioctl_filter(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    listener = listener < 0 ? errno : 0;
    while ((status = rm_memory(fd, client, FIRST_MEMORY + n, MIB)) == NV_OK)
        n++;
    say("listener %d held %u status %lld", listener, n, (long long)status);
    hold();
}
