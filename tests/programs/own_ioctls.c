/* Linux's own ioctls on files of Linux's own. Prints a line for each: its name, what it returned, its errno,
 * the answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/sockios.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

static void one(const char *name, int fd, unsigned long cmd, const void *given, size_t bytes)
{
    uint8_t answer[512] = {0};
    int result;

    if (bytes)
        memcpy(answer, given, bytes);
    errno = 0;
    result = ioctl(fd, cmd, answer);
    printf("%s %d %d ", name, result, errno);
    for (size_t i = 0; i < 64; i++)
        printf("%02x", answer[i]);
    printf("\n");
}

#define ONE(fd, cmd)          one(#cmd " of " #fd, fd, cmd, NULL, 0)
#define GIVEN(fd, cmd, value) one(#cmd " of " #fd, fd, cmd, &(value), sizeof(value))

int main(void)
{
    int regular = open("/tmp/own_ioctls", O_RDWR | O_CREAT, 0600), null = open("/dev/null", O_RDWR);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), stream = socket(AF_INET, SOCK_STREAM, 0), pipes[2];
    const int yes = 1, no = 0;
    const struct winsize size = {.ws_row = 40, .ws_col = 100};
    const struct ifreq interface = {.ifr_name = "lo"};
    const struct uffdio_api api = {.api = UFFD_API};
    const struct file_dedupe_range range = {.src_length = 1};
    int faults = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);

    if (regular < 0 || null < 0 || terminal < 0 || stream < 0 || pipe(pipes) < 0)
        return 1;
    if (write(regular, "abc", 3) != 3 || write(pipes[1], "ab", 2) != 2)
        return 1;
    ONE(regular, FIBMAP);
    ONE(regular, FIGETBSZ);
    ONE(regular, FIONREAD);
    ONE(regular, FIOQSIZE);
    ONE(regular, BLKGETSIZE64);
    ONE(regular, BLKSSZGET);
    ONE(null, FIBMAP);
    ONE(null, BLKGETSIZE64);
    ONE(null, TCGETS);
    ONE(pipes[0], FIONREAD);
    GIVEN(pipes[0], FIONBIO, yes);
    GIVEN(pipes[0], FIOASYNC, no);
    ONE(pipes[0], FIOCLEX);
    ONE(pipes[0], FIONCLEX);
    ONE(terminal, TCGETS);
    GIVEN(terminal, TIOCSWINSZ, size);
    ONE(terminal, TIOCGWINSZ);
    ONE(terminal, TIOCOUTQ);
    ONE(terminal, TIOCGPTLCK);
    GIVEN(terminal, TIOCPKT, yes);
    GIVEN(stream, SIOCGIFINDEX, interface);
    GIVEN(stream, SIOCGIFFLAGS, interface);
    ONE(stream, SIOCATMARK);
    ONE(stream, SIOCINQ);
    /* Commands that the filter catches beside NVIDIA's. */
    GIVEN(faults, UFFDIO_API, api);
    GIVEN(regular, FIDEDUPERANGE, range);
    ONE(regular, FS_IOC_FSSETXATTR);
    ONE(regular, FITRIM);
    /* The numbers that disks of SCSI have for theirs. */
    for (unsigned long number = 0; number < 16; number++)
        one("bare number", regular, number == FIBMAP ? 0 : number, NULL, 0);
    unlink("/tmp/own_ioctls");
    return 0;
}
