/* Makes the calls listed in a file on /dev/null, one per line, and prints the errno of each, 0 for success.
 * Lines: an ABI letter and a hexadecimal number. n: ioctl of the native ABI, all 64 bits of the number; i:
 * ioctl of i386 through int 0x80; x: ioctl of x32; u: io_uring_setup with that many entries. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { I386_IOCTL = 54, X32_IOCTL = 0x40000000 | 514 };

static long i386_ioctl(long fd, unsigned long command)
{
    long result;

    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"((long)I386_IOCTL), "b"(fd), "c"(command), "d"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static long error_of(char abi, long fd, unsigned long command)
{
    long result;

    if (abi == 'i') {
        result = i386_ioctl(fd, command);
        return result < 0 ? -result : 0;
    }
    if (abi == 'u')
        result = syscall(SYS_io_uring_setup, command, 0L);
    else
        result = syscall(abi == 'x' ? X32_IOCTL : SYS_ioctl, fd, command, 0L);
    return result < 0 ? errno : 0;
}

int main(int argc, char **argv)
{
    FILE *calls = argc == 2 ? fopen(argv[1], "r") : NULL;
    int fd = open("/dev/null", O_RDWR);
    unsigned long command;
    char abi;

    if (!calls || fd < 0)
        return 2;
    while (fscanf(calls, " %c %lx", &abi, &command) == 2)
        printf("%ld\n", error_of(abi, fd, command));
    return 0;
}
