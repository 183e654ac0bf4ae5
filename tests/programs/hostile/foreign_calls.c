/* Roads to the driver that are not the ioctl() of a 64-bit program. Usage: foreign_calls io_uring|i386|x32
 * Prints the errno, or "made" when there is memory afterwards, and stands still. Not position independent:
 * what an i386 call points at is below 4 GiB. */
#include "../rm.h"
#include <sys/syscall.h>

enum { I386_IOCTL = 54, X32_IOCTL = 0x40000000 + 514, X32_PLAIN_IOCTL = 0x40000000 + SYS_ioctl };

static struct rm_alloc call;
static struct rm_memory memory = {.owner = OWNER, .size = MIB};

static long i386_ioctl(long fd, unsigned long command, void *arg)
{
    long result;

    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"((long)I386_IOCTL), "b"(fd), "c"(command), "d"(arg)
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}

static long error(long result)
{
    return result < 0 ? errno : 0;
}

int main(int argc, char **argv)
{
    static const unsigned long cmd = RM_CMD(NV_ESC_RM_ALLOC, sizeof(call));
    static uint8_t setup[120];
    uint32_t client = 0;
    int fd = open_client(&client);
    long first = 0, second = 0;
    bool made;

    call = (struct rm_alloc){
        .root = client,
        .parent = DEVICE,
        .handle = FIRST_MEMORY,
        .class_id = NV01_MEMORY_LOCAL_USER,
        .params = (uintptr_t)&memory,
        .params_size = sizeof(memory),
    };
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "io_uring")) {
        first = error(syscall(SYS_io_uring_setup, 8, setup));
        second = error(syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0));
    } else if (!strcmp(argv[1], "i386")) {
        first = second = -i386_ioctl(fd, cmd, &call);
    } else {
        first = error(syscall(X32_IOCTL, fd, cmd, &call));
        second = error(syscall(X32_PLAIN_IOCTL, fd, cmd, &call));
    }
    made = rm_memory(fd, client, FIRST_MEMORY, MIB) != NV_OK;
    rm_free(fd, client, FIRST_MEMORY);
    if (made)
        say("made");
    else
        say("%ld %ld", first, second);
    hold();
}
